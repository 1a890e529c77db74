//! One connection to each server: its requests, its replies, and the messages in between.
//!
//! Rule    a message is compared in its position: before which reply, and in which order.

use std::collections::VecDeque;

use super::listening::{self, Subscriptions};
use super::plan::Request;
use super::relaxed::Relaxed;
use crate::support::reply::Reply;
use crate::support::target::{Heard, Link, Target, Wait};

/// Received bytes of one server that have not been read.
#[derive(Default)]
pub(crate) struct Inbox {
    pub(crate) link: Link,
    bytes: Vec<u8>,
    unasked: Vec<Reply>,
}

/// One connection to each server, redlatch first.
#[derive(Default)]
pub(crate) struct Client {
    pub(crate) inboxes: [Inbox; 2],
    /// The requests of an open transaction; `None` when none is open.
    queue: Option<Vec<Request>>,
    /// Requests without a reply: the first one blocks, the others are queued behind it.
    pub(crate) pending: VecDeque<Request>,
    /// Whether the real server has reported that the first request blocks.
    pub(crate) is_waiting: bool,
    /// Whether a request in progress has blocked. Redis runs the queued requests before it sends the BCAST messages it has
    /// gathered, so messages are compared at the next request.
    pub(crate) has_waited: bool,
    ear: Subscriptions,
    /// The members from which the next request draws, per server.
    looked: Option<[Reply; 2]>,
}

/// A disagreement: the request, and the reply of each server.
pub(crate) struct Difference {
    pub(crate) request: Request,
    pub(crate) ours: String,
    pub(crate) theirs: String,
}

impl Inbox {
    /// The next reply; `None` if there is none yet. Messages before it are kept.
    pub(crate) fn reply(&mut self, from: &mut dyn Target, wait: Wait) -> Result<Option<Reply>, String> {
        loop {
            while let Some((frame, taken)) = Reply::read(&self.bytes)? {
                self.bytes.drain(..taken);
                if !listening::is_unasked(&frame) {
                    return Ok(Some(frame));
                }
                self.unasked.push(frame);
            }
            match from.receive(self.link, wait, &mut self.bytes) {
                Heard::Bytes => {}
                Heard::Closed => return Err("closed".to_owned()),
                Heard::Silence => return Ok(None),
            }
        }
    }

    /// All frames that answer one request.
    fn answer(&mut self, from: &mut dyn Target, first: Option<Reply>, count: usize) -> Result<Reply, String> {
        let mut next = || self.reply(from, Wait::UntilReply)?.ok_or_else(|| "silence".to_owned());
        let first = match first {
            Some(first) => first,
            None => next()?,
        };
        if count <= 1 || listening::confirmed(&first).is_none() {
            return Ok(first);
        }
        let others = (1..count).map(|_| next()).collect::<Result<Vec<_>, _>>()?;
        Ok(Reply::List(b'*', [first].into_iter().chain(others).collect()))
    }

    /// The messages since the last call.
    fn unasked(&mut self) -> Vec<Reply> {
        std::mem::take(&mut self.unasked)
    }
}

impl Client {
    /// Reads the replies to one request from both servers. The `first` frame of redlatch may already have been read.
    pub(crate) fn replies(
        &mut self,
        request: &Request,
        first: Option<Reply>,
        ours: &mut dyn Target,
        theirs: &mut dyn Target,
    ) -> Result<[Reply; 2], Box<Difference>> {
        let is_queued = self.queue.is_some();
        let count = self.ear.confirmations(&request.words).filter(|_| !is_queued).unwrap_or(1);
        let [our_inbox, their_inbox] = &mut self.inboxes;
        let difference = |ours, theirs| Box::new(Difference { request: request.clone(), ours, theirs });
        let (ours, theirs) =
            match (our_inbox.answer(ours, first, count), their_inbox.answer(theirs, None, count)) {
                (Ok(ours), Ok(theirs)) => (ours, theirs),
                (ours, theirs) => return Err(difference(spell(ours), spell(theirs))),
            };
        if !self.has_waited {
            let unasked = [our_inbox.unasked(), their_inbox.unasked()].map(listening::in_kinds);
            if !listening::same_unasked(&unasked[0], &unasked[1]) {
                let heard = Request::new(vec![b"(heard)".to_vec()], Relaxed::Exact);
                let [ours, theirs] = unasked.map(|all| all.spell());
                return Err(Box::new(Difference { request: heard, ours, theirs }));
            }
        }
        let leaves_all = request.words.len() == 1 && count > 1;
        let replies = [ours, theirs].map(|reply| match reply {
            Reply::List(_, frames) if leaves_all => listening::in_order(frames),
            reply => reply,
        });
        self.compare(request, &replies)?;
        self.note(request, &replies[0]);
        Ok(replies)
    }

    /// Compares replies, those of a transaction one by one.
    fn compare(&mut self, request: &Request, replies: &[Reply; 2]) -> Result<(), Box<Difference>> {
        let parts = match (&self.queue, &replies[0], &replies[1]) {
            (Some(queue), Reply::List(_, ours), Reply::List(_, theirs))
                if is_named(request, "EXEC") && ours.len() == theirs.len() && ours.len() == queue.len() =>
            {
                queue.iter().zip(ours).zip(theirs).map(|((one, ours), theirs)| (one, ours, theirs)).collect()
            }
            _ => vec![(request, &replies[0], &replies[1])],
        };
        let is_queued = matches!(&replies[0], Reply::Simple(text) if text == b"QUEUED");
        for (part, ours, theirs) in parts {
            let is_lawful = match &self.looked {
                Some([our_look, their_look]) if part.relaxed == Relaxed::Drawn && !is_queued => {
                    part.is_drawn_from(our_look, ours) && part.is_drawn_from(their_look, theirs)
                }
                _ => true,
            };
            if !is_lawful || !part.relaxed.agree(ours, theirs) {
                let (ours, theirs) = (ours.spell(), theirs.spell());
                return Err(Box::new(Difference { request: part.clone(), ours, theirs }));
            }
            self.looked = part.is_look.then(|| [ours.clone(), theirs.clone()]);
        }
        Ok(())
    }

    /// Updates the state of the connection by a reply.
    fn note(&mut self, request: &Request, reply: &Reply) {
        self.ear.note(reply);
        let was_queued = matches!(reply, Reply::Simple(text) if text == b"QUEUED");
        match &mut self.queue {
            Some(queue) if was_queued => queue.push(request.clone()),
            None if is_named(request, "MULTI") && !matches!(reply, Reply::Error(_)) => {
                self.queue = Some(Vec::new());
            }
            _ if is_named(request, "RESET") && !matches!(reply, Reply::Error(_)) => {
                self.queue = None;
                self.ear.forget();
            }
            queue
                if (is_named(request, "EXEC") || is_named(request, "DISCARD"))
                    && request.words.len() == 1 =>
            {
                *queue = None;
            }
            _ => {}
        }
    }
}

fn is_named(request: &Request, name: &str) -> bool {
    request.words[0].eq_ignore_ascii_case(name.as_bytes())
}

fn spell(reply: Result<Reply, String>) -> String {
    reply.map_or_else(|why| format!("<{why}>"), |reply| reply.spell())
}
