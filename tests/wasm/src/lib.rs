//! The engine in WebAssembly, with one connection and a clock that is moved by hand: what `check.mjs` tries in Node.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use redlatch_core::commands::Shared;
use redlatch_core::engine::{Engine, Flow};
use redlatch_core::keyspace::{Due, Keyspace, Layout};
use redlatch_core::state::clients::Client;
use redlatch_core::state::session::Session;
use redlatch_core::state::settings::Settings;
use redlatch_proto::clock::{Clock, LockTime, Now};
use redlatch_proto::resp::Decoder;
use wasm_bindgen::prelude::wasm_bindgen;

/// An engine and its client.
#[wasm_bindgen]
pub struct Server {
    engine: Engine,
    clock: Arc<StillClock>,
    session: Session,
    decoder: Decoder,
}

struct StillClock(AtomicU64);

impl Clock for StillClock {
    fn now(&self) -> Now {
        Now { lock: LockTime::from_millis(self.0.load(Relaxed)), wall_offset_ms: WALL_OFFSET_MS }
    }

    fn micros(&self) -> u64 {
        self.0.load(Relaxed) * 1_000
    }

    fn wall_micros(&self) -> u64 {
        self.now().wall().as_millis() * 1_000
    }
}

#[wasm_bindgen]
impl Server {
    #[wasm_bindgen(constructor)]
    pub fn start() -> Self {
        let clock = Arc::new(StillClock(AtomicU64::new(START_MS)));
        let time = Arc::clone(&clock) as Arc<dyn Clock>;
        let layout = Layout { shards: 1, databases: 1, seed: 7, journal: None };
        let shared = Shared::new(Keyspace::new(layout, || {}), Settings::default(), time, 7);
        let engine = Engine::new(Arc::new(shared));
        let id = engine.shared().registries.clients.next_id();
        let client = Client::new(id, "here:1".to_owned(), "here:0".to_owned(), false, clock.now().lock);
        Self { session: engine.connect(client), engine, clock, decoder: Decoder::new() }
    }

    /// Carries out a request, as it comes through a socket. Returns the reply; nothing if the request is not whole, or waits.
    pub fn ask(&mut self, bytes: &[u8]) -> Vec<u8> {
        let (mut batch, mut reply) = (self.engine.batch(), Vec::new());
        if let Ok(Some(_)) = self.decoder.next(bytes, self.engine.trust(&self.session)) {
            let request = self.decoder.request(bytes);
            let flow = self.engine.execute(&mut self.session, request, &mut batch, &mut reply);
            if flow != Flow::Next {
                self.session.client.close();
            }
        }
        self.engine.end_batch(&mut self.session, batch);
        reply
    }

    /// Moves the clock on, and ends the leases that are over.
    pub fn advance(&mut self, millis: u32) {
        self.clock.0.fetch_add(millis.into(), Relaxed);
        while matches!(self.engine.tick(), Due::More) {}
    }
}

/// The lock time at which a server starts.
const START_MS: u64 = 1_000;
/// From lock time to wall time, which is in November 2023.
const WALL_OFFSET_MS: i64 = 1_700_000_000_000;
