//! The desk of one connection: where its requests are carried out.
//!
//! Owns    the session, the bytes received and the replies not yet sent. No stream: what takes long carries the desk to a
//!         thread that may be held, and back.
//! Rule    per batch one reading of the clock, and one call of the engine for each request.

use std::time::Duration;

use bytes::{Buf, BytesMut};

use super::house::House;
use crate::clock::LockTime;
use crate::engine::{Batch, Flow};
use crate::error::ProtocolError;
use crate::limits::WORK_MAX;
use crate::resp::{Decoder, Reply};
use crate::state::metrics::Metrics;
use crate::state::session::Session;

/// Room made for every read of a connection that sends much at once.
pub(super) const READ_BYTES: usize = 16 * 1024;
/// Room made for every read of any other: whoever asks for a lock says little.
const READ_BYTES_AT_FIRST: usize = 1024;
/// Input buffer kept by an idle connection; what a large request needed is given back.
pub(super) const INPUT_BYTES_KEPT: usize = 2 * READ_BYTES;
/// Output gathered before it is sent although more requests wait in the buffer.
pub(super) const OUTPUT_BYTES_BATCH: usize = 256 * 1024;
/// A wait that never ends by itself.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Where the requests of one connection are carried out.
pub(super) struct Desk {
    pub(super) house: House,
    pub(super) session: Session,
    pub(super) decoder: Decoder,
    pub(super) input: BytesMut,
    /// Room made for the next read.
    pub(super) read_bytes: usize,
    pub(super) output: Vec<u8>,
    /// How much of the output has been sent.
    pub(super) written: usize,
    pub(super) state: State,
    /// The last call of [`Desk::carry_out`] stopped for the sake of the output, and more may follow once that is sent; or for
    /// the sake of others, whose turn it is.
    pub(super) has_more: bool,
}

/// What a connection does next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    /// It takes requests.
    Open,
    /// The request at the front of the input is held back until then.
    Held(LockTime),
    /// The request at the front of the input is to be carried out where a thread may be held; then it asks again whether
    /// it may be carried out at all.
    Offload(LockTime),
    /// A call of the session waits.
    Waiting,
    /// It sends what is there and ends.
    Closing,
}

impl Desk {
    pub(super) fn new(house: House, mut session: Session) -> Self {
        session.may_block = false;
        Self {
            house,
            session,
            decoder: Decoder::new(),
            input: BytesMut::new(),
            read_bytes: READ_BYTES_AT_FIRST,
            output: Vec::new(),
            written: 0,
            state: State::Open,
            has_more: false,
        }
    }

    /// The same on a thread that may be held.
    pub(super) fn carry_out_aside(&mut self) {
        self.session.may_block = true;
        self.state = State::Open;
        let mut batch = self.house.engine.batch();
        self.carry_out(&mut batch);
        self.house.engine.settle_batch(batch);
        self.session.may_block = false;
    }

    /// From when on a script that still runs makes others be told so.
    fn busy_from(&self) -> LockTime {
        let shared = self.house.engine.shared();
        let millis = shared.settings.busy_millis().unwrap_or(FOR_EVER.as_millis() as u64);
        shared.clock.now().lock + millis.max(1)
    }

    /// Carries out the requests in the input, as far as they are whole and may run now.
    pub(super) fn carry_out(&mut self, batch: &mut Batch) {
        self.has_more = self.may_go_on() && self.carry_out_input(batch);
    }

    /// Whether requests may be carried out now; what waited and may go on has gone on.
    fn may_go_on(&mut self) -> bool {
        self.session.work = 0;
        let engine = &self.house.engine;
        // Asked as late as this: another request of the same batch may have killed the client.
        if self.session.client.is_closing() || self.session.client.is_cut() {
            self.state = State::Closing;
        }
        match self.state {
            State::Held(until) if until > engine.shared().clock.now().lock && engine.is_paused() => {
                return false;
            }
            State::Waiting => match engine.resume(&mut self.session, &mut self.output) {
                Flow::Next => {}
                _ => return false,
            },
            State::Offload(until) if until > engine.shared().clock.now().lock => return false,
            State::Closing => return false,
            _ => {}
        }
        self.state = State::Open;
        !self.input.is_empty()
    }

    /// Carries out what is in the input; true when it stopped though more may follow.
    fn carry_out_input(&mut self, batch: &mut Batch) -> bool {
        let engine = &self.house.engine;
        let enough = self.output.len() + OUTPUT_BYTES_BATCH;
        let (mut taken, mut more) = (0, true);
        while self.state == State::Open && self.output.len() < enough && self.session.work < WORK_MAX {
            let (buffer, trust) = (&self.input[taken..], engine.trust(&self.session));
            if buffer.is_empty() {
                more = false;
                break;
            }
            match self.decoder.next(buffer, trust) {
                Ok(Some(bytes)) => {
                    let request = self.decoder.request(buffer);
                    match engine.execute(&mut self.session, request, batch, &mut self.output) {
                        Flow::Next => {}
                        Flow::Close => self.state = State::Closing,
                        Flow::Again(until) => {
                            self.state = State::Held(until);
                            break;
                        }
                        Flow::Offload => {
                            self.state = State::Offload(self.busy_from());
                            break;
                        }
                        Flow::Wait => self.state = State::Waiting,
                    }
                    taken += bytes;
                }
                Ok(None) => {
                    more = false;
                    break;
                }
                Err(error) => {
                    refuse(error, &engine.shared().metrics, &self.session, &mut self.output);
                    self.state = State::Closing;
                }
            }
        }
        if taken == self.input.len() {
            // Its room stays where it is: what has been stepped over would have to be reclaimed.
            self.input.clear();
        } else {
            self.input.advance(taken);
            if taken > INPUT_BYTES_KEPT && self.input.len() < taken / 4 {
                // What a large request needed is not kept for the few bytes behind it.
                self.input = BytesMut::from(&self.input[..]);
            }
        }
        engine.leave_batch(&mut self.session, batch);
        more && self.state == State::Open
    }

    /// Whether the peer has said who it is, or need not.
    pub(super) fn is_trusted(&self) -> bool {
        self.house.engine.trust(&self.session).authenticated
    }

    /// Gives back all room there is for requests and replies to come; none is in the middle of anything.
    pub(super) fn rest(&mut self) {
        if !self.input.is_empty() || self.unread() > 0 {
            return;
        }
        (self.input, self.output, self.written) = Default::default();
        self.read_bytes = READ_BYTES_AT_FIRST;
        self.decoder = Decoder::new();
        self.session.scratch = Vec::new();
    }

    /// Bytes of replies that the peer has yet to take.
    pub(super) fn unread(&self) -> usize {
        self.output.len() - self.written
    }

    /// Until when the connection is held back, if it is known.
    pub(super) fn until(&self) -> Option<LockTime> {
        match self.state {
            State::Held(until) | State::Offload(until) => Some(until),
            State::Waiting => self.session.parked.as_ref().and_then(|parked| parked.until),
            State::Open | State::Closing => None,
        }
    }

    /// Whether a request waits, for a moment, an event or the end of something long.
    pub(super) fn is_held(&self) -> bool {
        matches!(self.state, State::Held(_) | State::Offload(_) | State::Waiting)
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.house.engine.disconnect(&mut self.session);
        self.house.settled();
    }
}

/// Tells the client what is wrong with its frame.
fn refuse(error: ProtocolError, metrics: &Metrics, session: &Session, output: &mut Vec<u8>) {
    session.client.note_end("sent what is no request");
    if error == ProtocolError::RequestTooLarge {
        metrics.query_limit_disconnections.add(1);
    } else {
        Reply::new(output, session.protocol).error_bytes(&error.line());
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::limits::REPLY_BYTES_MAX;
    use crate::server::{Builder, Server};
    use crate::state::clients::Client;

    /// A server, which ends when it is dropped, and the desk of its only client.
    async fn desk() -> (Server, Desk) {
        let server = Builder::default().start().await.unwrap();
        let house = server.house().clone();
        let client = Client::new(1, String::new(), String::new(), false, LockTime::from_millis(1));
        let session = house.engine.connect(client);
        (server, Desk::new(house, session))
    }

    #[tokio::test]
    async fn whoever_asks_for_too_much_is_cut_off() {
        let (_server, mut desk) = desk().await;
        let house = desk.house.clone();
        desk.input.extend_from_slice(b"SET k 0123456789\r\nGET k\r\n");
        desk.carry_out(&mut house.engine.batch());
        assert_eq!(desk.output, b"+OK\r\n$10\r\n0123456789\r\n");
        // As if the same request had gathered so much; the system gives no memory for zeros that nobody looks at.
        desk.output = vec![0; REPLY_BYTES_MAX - 10];
        let mut batch = house.engine.batch();
        desk.input.extend_from_slice(b"GET k\r\nGET k\r\n");
        let bytes = desk.decoder.next(&desk.input, house.engine.trust(&desk.session)).unwrap();
        assert_eq!(bytes, Some(7));
        let request = desk.decoder.request(&desk.input);
        let flow = house.engine.execute(&mut desk.session, request, &mut batch, &mut desk.output);
        assert_eq!((flow, desk.output.len()), (Flow::Close, REPLY_BYTES_MAX - 10));
        assert!(desk.session.client.is_cut());
    }

    #[tokio::test]
    async fn nothing_is_done_for_a_client_that_another_kills_in_the_same_round() {
        let server = Builder::default().start().await.unwrap();
        let (mut killer, mut victim) = (server.stream(), server.stream());
        let mut number = [0; 16];
        victim.write_all(b"CLIENT ID\r\n").await.unwrap();
        let length = victim.read(&mut number).await.unwrap();
        let number = String::from_utf8_lossy(&number[1..length - 2]);
        // Neither has its turn before both have spoken.
        killer.write_all(format!("CLIENT KILL ID {number}\r\n").as_bytes()).await.unwrap();
        victim.write_all(b"SET k v\r\n").await.unwrap();
        let mut answer = [0; 4];
        killer.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, *b":1\r\n");
        assert_eq!(victim.read(&mut [0]).await.unwrap(), 0);
        assert_eq!(server.keys().get("k"), None);
    }

    #[tokio::test]
    async fn a_limit_holds_for_what_stands_behind_it() {
        let (_server, mut desk) = desk().await;
        let long = vec![b'x'; (1 << 20) + 1];
        let echo = [format!("*2\r\n$4\r\nECHO\r\n${}\r\n", long.len()).as_bytes(), &long, b"\r\n"].concat();
        desk.input.extend_from_slice(
            b"SET k v\r\nCONFIG REWRITE\r\nCONFIG SET proto-max-bulk-len 1mb\r\nGET k\r\n",
        );
        desk.input.extend_from_slice(&echo);
        let mut batch = desk.house.engine.batch();
        desk.carry_out(&mut batch);
        assert_eq!(desk.output, b"+OK\r\n");
        assert!(matches!(desk.state, State::Offload(_)), "to write a file may take long");
        desk.carry_out_aside();
        let expected = "+OK\r\n-ERR The server is running without a config file\r\n+OK\r\n$1\r\nv\r\n\
                        -ERR Protocol error: invalid bulk length\r\n";
        assert_eq!(String::from_utf8_lossy(&desk.output), expected);
        assert_eq!(desk.state, State::Closing);
    }
}
