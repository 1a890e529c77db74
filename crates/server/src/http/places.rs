//! The places of connections: how many are served, and which one ends when another peer connects.
//!
//! Owns    [`Places`], and the [`Place`] of each connection: whether it is in a request, or since when it waits for one.
//! Rule    where all places are taken, the connection that has waited for the longest ends, so that idle and slow peers keep
//!         no probe out. Only where all are in requests, a peer is refused.
//! Rule    a request that waits for a lock takes no place from others: there is one more as long as it waits.
//! Rule    a request begins with its head, and ends when its response has left for the system.

use std::sync::Arc;

use http_body_util::BodyExt;
use hyper::Response;
use parking_lot::Mutex;
use redlatch_proto::limits::HTTP_CONNECTIONS_MAX;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::responses::Body;

/// The places of all connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Places(Arc<Mutex<Vec<Arc<Place>>>>);

/// The place of one connection.
#[derive(Debug)]
pub(super) struct Place {
    state: Mutex<State>,
    /// Notified when another connection gets the place.
    end: Notify,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// Its whole response is with hyper, and may not have left.
    Answered,
    /// Its request is being read or answered.
    InRequest,
    /// It has waited for a request since then.
    WaitsSince(Instant),
}

/// A place that has been taken, until this is dropped.
#[derive(Debug)]
pub(super) struct Taken {
    places: Places,
    place: Arc<Place>,
}

/// A request, until its response has been handed over.
#[derive(Debug)]
struct InRequest(Arc<Place>);

impl Places {
    /// A place, which another connection may have lost. `None` if all connections are in requests. `waiting`: how many of
    /// these wait for a lock.
    pub(super) fn take(&self, waiting: usize) -> Option<Taken> {
        let mut all = self.0.lock();
        if all.len() >= HTTP_CONNECTIONS_MAX.saturating_add(waiting) {
            let idle = all.iter().enumerate().filter_map(|(at, place)| Some((place.waits_since()?, at)));
            let (_, longest) = idle.min()?;
            all.swap_remove(longest).end.notify_one();
        }
        let state = Mutex::new(State::WaitsSince(Instant::now()));
        let place = Arc::new(Place { state, end: Notify::new() });
        all.push(Arc::clone(&place));
        Some(Taken { places: self.clone(), place })
    }
}

impl Taken {
    pub(super) fn place(&self) -> &Arc<Place> {
        &self.place
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.places.0.lock().retain(|place| !Arc::ptr_eq(place, &self.place));
    }
}

impl Place {
    fn waits_since(&self) -> Option<Instant> {
        match *self.state.lock() {
            State::WaitsSince(since) => Some(since),
            State::Answered | State::InRequest => None,
        }
    }

    /// Resolves when another connection has got the place.
    pub(super) async fn lost(&self) {
        self.end.notified().await;
    }

    /// Answers a request by `answer`. The request lasts until the body of the response has been handed over.
    pub(super) async fn during(
        self: &Arc<Self>,
        answer: impl Future<Output = Response<Body>>,
    ) -> Response<Body> {
        *self.state.lock() = State::InRequest;
        let request = InRequest(Arc::clone(self));
        answer.await.map(|body| {
            // There are no errors: the closure lives as long as the body, and so does the request.
            body.map_err(move |never| {
                let _ = &request;
                never
            })
            .boxed()
        })
    }

    /// All that hyper has written is with the system.
    pub(super) fn flushed(&self) {
        let mut state = self.state.lock();
        if *state == State::Answered {
            *state = State::WaitsSince(Instant::now());
        }
    }
}

impl Drop for InRequest {
    fn drop(&mut self) {
        *self.0.state.lock() = State::Answered;
    }
}
