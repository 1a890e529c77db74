//! `/api/events`: server-sent events about all locks.
//!
//! Owns    the viewers, and the task that takes samples for them: there is one while there is a viewer.
//! Rule    samples take at most one part in [`COST`] of the time, between [`INTERVAL_MIN`] and [`INTERVAL_MAX`].
//! Rule    a viewer has a queue of [`EVENTS_MAX`] events. One that does not read is dropped when its queue is full; its
//!         connection ends with what is in the queue, or when the peer leaves bytes unread for too long.
//! Rule    before a sample is sent, the right of every viewer is checked again. A viewer that has lost it is dropped.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep_until};

use super::HttpContext;
use super::access::{is_authenticated, shown};
use super::groups::groups;
use super::parameters::Parameters;
use super::questions::{ApiError, response};
use super::responses::{Body, whole};
use super::sampler::{Moment, Sampler, unix_ms};
use redlatch_core::state::settings;

/// Viewers at the same time: fewer than connections, so that health and metrics are always served.
pub(super) const VIEWERS_MAX: usize = 16;
/// Events that wait for a viewer. All viewers share the bytes of an event.
const EVENTS_MAX: usize = 8;
/// The shortest time between two samples.
const INTERVAL_MIN: Duration = Duration::from_millis(500);
/// The longest time between two samples. A sample seems to take long also when the machine is busy with something else.
const INTERVAL_MAX: Duration = Duration::from_secs(10);
/// A sample is followed by so many times the time that it took.
const COST: u32 = 40;

#[derive(Debug, Default)]
pub(super) struct Viewers {
    inner: Mutex<Inner>,
    /// Notified when a viewer has come.
    arrival: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    viewers: Vec<Viewer>,
    /// Whether there is a task that takes samples.
    is_sampled: bool,
    /// Whether the last sample was for viewers that have all gone, so that the next viewer wants a new one.
    is_stale: bool,
}

#[derive(Debug)]
struct Viewer {
    events: mpsc::Sender<Bytes>,
    /// What it has shown: a password or a token.
    shown: Option<HeaderValue>,
    /// Whether it knows what changes refer to.
    has_snapshot: bool,
}

/// A response that lasts as long as its viewer.
#[derive(Debug)]
struct Events(mpsc::Receiver<Bytes>);

impl HttpBody for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}

/// Answers a viewer, and takes samples from now on if it is the first. HEAD follows nothing.
pub(super) fn follow(context: &Arc<HttpContext>, request: &Request<Bytes>) -> Response<Body> {
    const KIND: &str = "text/event-stream";
    if let Err(error) = Parameters::of(request, &[]) {
        return response(Err(error));
    }
    if request.method() == Method::HEAD {
        return whole(StatusCode::OK, KIND, "");
    }
    let mut inner = context.viewers.inner.lock();
    inner.viewers.retain(|viewer| !viewer.events.is_closed());
    if inner.viewers.len() >= VIEWERS_MAX {
        let error = json!({ "error": format!("there are {VIEWERS_MAX} viewers already") });
        return whole(StatusCode::SERVICE_UNAVAILABLE, "application/json", error.to_string());
    }
    inner.is_stale |= inner.viewers.is_empty();
    let (events, receiver) = mpsc::channel(EVENTS_MAX);
    let mut shown = shown(request).cloned();
    // No log shows it.
    shown.iter_mut().for_each(|shown| shown.set_sensitive(true));
    inner.viewers.push(Viewer { events, shown, has_snapshot: false });
    if std::mem::replace(&mut inner.is_sampled, true) {
        context.viewers.arrival.notify_one();
    } else {
        tokio::spawn(sample(Arc::clone(context)));
    }
    let mut response = Response::new(Events(receiver).boxed());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(KIND));
    response
}

/// Takes samples until there is no viewer.
async fn sample(context: Arc<HttpContext>) {
    let (viewers, about) = (&context.viewers, || about(&context));
    let mut sampler = Sampler::default();
    while viewers.are_there() {
        viewers.inner.lock().is_stale = false;
        let start = Instant::now();
        let sampled = sampler.sample(&context).await;
        let interval = (start.elapsed() * COST).clamp(INTERVAL_MIN, INTERVAL_MAX);
        let shared = context.server.engine.shared();
        viewers.keep(|viewer| is_authenticated(shared, viewer.shown.as_ref()));
        let moment = || Moment { now_ms: unix_ms(&context), interval };
        match sampled {
            Ok(change) => {
                viewers.send(true, || sampler.change(&change, moment()));
                viewers.send(false, || sampler.snapshot(&about(), moment()));
            }
            Err(error) => viewers.send_error(&error),
        }
        let mut next = start + interval;
        loop {
            tokio::select! {
                () = sleep_until(next) => break,
                () = viewers.arrival.notified() => {}
            }
            if std::mem::take(&mut viewers.inner.lock().is_stale) {
                next = next.min(start + INTERVAL_MIN);
            } else if sampler.has_sample() && next > start + INTERVAL_MIN {
                // Others watch, so the last sample is not old.
                viewers.send(false, || sampler.snapshot(&about(), moment()));
            }
        }
    }
}

/// What a snapshot says about the server.
fn about(context: &HttpContext) -> Map<String, Value> {
    let shared = context.server.engine.shared();
    let settings = &shared.settings;
    let fields = [
        ("version", env!("CARGO_PKG_VERSION").into()),
        ("admin", settings.get(settings::HTTP_ADMIN).into()),
        ("group", groups(shared.cluster.as_deref())),
    ];
    fields.into_iter().map(|(name, value): (&str, Value)| (name.to_owned(), value)).collect()
}

impl Viewers {
    /// Forgets the viewers that have gone. False if there is none, and from then on no task takes samples.
    fn are_there(&self) -> bool {
        self.keep(|viewer| !viewer.events.is_closed());
        let mut inner = self.inner.lock();
        inner.is_sampled = !inner.viewers.is_empty();
        inner.is_sampled
    }

    /// Drops all viewers but these.
    fn keep(&self, is_kept: impl Fn(&Viewer) -> bool) {
        self.inner.lock().viewers.retain(is_kept);
    }

    /// Sends an event to the viewers that have a snapshot, or have none and get one with it.
    fn send(&self, has_snapshot: bool, event: impl FnOnce() -> String) {
        let mut inner = self.inner.lock();
        if !inner.viewers.iter().any(|viewer| viewer.has_snapshot == has_snapshot) {
            return;
        }
        let event = Bytes::from(event());
        inner.viewers.retain_mut(|viewer| {
            let is_addressed = viewer.has_snapshot == has_snapshot;
            viewer.has_snapshot |= is_addressed;
            !is_addressed || viewer.events.try_send(event.clone()).is_ok()
        });
    }

    /// Tells every viewer that there is no new sample.
    fn send_error(&self, error: &ApiError) {
        let event = Bytes::from(format!("event: error\ndata: {}\n\n", json!({ "error": error.text() })));
        self.inner.lock().viewers.retain(|viewer| viewer.events.try_send(event.clone()).is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn viewer(viewers: &Viewers) -> mpsc::Receiver<Bytes> {
        let (events, receiver) = mpsc::channel(EVENTS_MAX);
        let viewer = Viewer { events, shown: None, has_snapshot: false };
        viewers.inner.lock().viewers.push(viewer);
        receiver
    }

    #[test]
    fn a_viewer_gets_a_snapshot_once_and_changes_after_it() {
        let viewers = Viewers::default();
        let mut first = viewer(&viewers);
        viewers.send(true, || "change 0".to_owned());
        viewers.send(false, || "snapshot 1".to_owned());
        let mut second = viewer(&viewers);
        viewers.send(true, || "change 1".to_owned());
        viewers.send(false, || "snapshot 2".to_owned());
        viewers.send(false, || "snapshot 3".to_owned());
        let received = |receiver: &mut mpsc::Receiver<Bytes>| {
            std::iter::from_fn(|| receiver.try_recv().ok()).collect::<Vec<_>>()
        };
        assert_eq!(received(&mut first), ["snapshot 1", "change 1"]);
        assert_eq!(received(&mut second), ["snapshot 2"]);
    }

    #[test]
    fn a_viewer_that_does_not_read_is_dropped_and_another_is_not() {
        let viewers = Viewers::default();
        let (stuck, mut reads) = (viewer(&viewers), viewer(&viewers));
        viewers.send(false, || "snapshot".to_owned());
        for _ in 0..EVENTS_MAX {
            assert!(reads.try_recv().is_ok());
            viewers.send(true, || "change".to_owned());
        }
        assert_eq!(viewers.inner.lock().viewers.len(), 1);
        assert_eq!(stuck.len(), EVENTS_MAX);
        assert!(stuck.is_closed() && !reads.is_closed());
        drop(reads);
        assert!(!viewers.are_there() && !viewers.inner.lock().is_sampled, "samples end with the last viewer");
    }
}
