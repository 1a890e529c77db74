//! The client of etcd, over the gateway that every server of etcd has beside gRPC.
//!
//! Owns    the connections, and the token of the login.
//! Rule    an endpoint has half of `cluster-takeover` to answer, so that another one can before another node leads. If none
//!         does, all of them have twice that time.
//! Rule    an error whose request may have been carried out is [`EtcdError::Unknown`]; the next request goes to another
//!         endpoint. A request is sent twice only where the first one was refused for its token.
//! Why     the gateway takes HTTP and JSON, which the crate has for its own HTTP port. gRPC would take tonic, and types that
//!         `protoc` makes at build time, or a copy of them.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Request, Response, body::Incoming};
use parking_lot::{Mutex, RwLock};
use redlatch_client::Trust;
use redlatch_core::replication::etcd::{Answer, Etcd, EtcdError, Transaction};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::endpoint::{Endpoint, Sender};
use super::gateway::{self, Failure};

/// How long a connection to an endpoint may take, with TLS: another endpoint is quicker then.
const CONNECT_MAX: Duration = Duration::from_millis(500);
/// How long the body of an answer may take: some megabytes of the log.
const BODY_MAX: Duration = Duration::from_secs(2);
/// How long a login may take: etcd hashes the password on purpose.
const LOGIN_MAX: Duration = Duration::from_secs(5);
/// The longest answer: some blobs of a megabyte, which base64 makes a third longer.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Connections that are kept for the next request: commits, reads and a login at the same time.
const IDLE_MAX: usize = 4;

/// A client of etcd. Clones share connections.
#[derive(Clone)]
pub(super) struct EtcdClient {
    inner: Arc<Inner>,
    runtime: Handle,
}

struct Inner {
    endpoints: RwLock<Arc<[Endpoint]>>,
    /// The endpoint of the next request, modulo their number.
    current: AtomicUsize,
    trust: Trust,
    /// User and password; without a user there is no login.
    login: (String, String),
    token: Mutex<Option<HeaderValue>>,
    /// How long an endpoint may take to answer. etcd itself gives up after seven seconds; another endpoint may be quicker.
    answer_max: Duration,
    patience: Patience,
    /// With the endpoint that they lead to.
    idle: Mutex<Vec<(Endpoint, Sender)>>,
}

/// Whether requests have twice the time: no endpoint answers in the usual one.
#[derive(Debug, Default)]
struct Patience {
    is_on: AtomicBool,
    /// How many answers in a row have not come in time.
    missed: AtomicUsize,
}

impl Patience {
    /// An answer has not come in time. `endpoints`: how many there are.
    fn note_miss(&self, endpoints: usize) {
        if self.missed.fetch_add(1, Relaxed) + 1 >= endpoints {
            self.is_on.store(true, Relaxed);
        }
    }

    /// An answer has come, after a time that is short or not.
    fn note_answer(&self, is_quick: bool) {
        self.missed.store(0, Relaxed);
        if is_quick {
            self.is_on.store(false, Relaxed);
        }
    }
}

impl fmt::Debug for EtcdClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdClient").field("endpoints", &self.inner.endpoints()).finish_non_exhaustive()
    }
}

/// An answer whose body is not read yet, and its connection, which carries the next request after that.
struct Answered {
    response: Response<Incoming>,
    endpoint: Endpoint,
    sender: Sender,
}

/// Why one endpoint has not answered.
enum Missed {
    /// The request has not reached it.
    Unsent(String),
    /// The request may have been carried out.
    Unknown(String),
}

impl EtcdClient {
    /// A client whose requests run in the runtime that is entered. Nothing is connected before the first request.
    pub(super) fn new(
        endpoints: Vec<Endpoint>,
        trust: Trust,
        login: (String, String),
        answer_max: Duration,
    ) -> Self {
        let inner = Inner {
            endpoints: RwLock::new(endpoints.into()),
            current: AtomicUsize::new(0),
            trust,
            login,
            token: Mutex::default(),
            answer_max,
            patience: Patience::default(),
            idle: Mutex::default(),
        };
        Self { inner: Arc::new(inner), runtime: Handle::current() }
    }

    /// Asks these endpoints from now on.
    pub(super) fn set_endpoints(&self, endpoints: Vec<Endpoint>) {
        *self.inner.endpoints.write() = endpoints.into();
        self.inner.idle.lock().clear();
    }

    /// Carries out a transaction.
    ///
    /// # Errors
    /// [`EtcdError`]
    pub(super) async fn transaction(&self, transaction: &Transaction) -> Result<Answer, EtcdError> {
        let body = self.inner.request("/v3/kv/txn", gateway::transaction(transaction)).await?;
        gateway::answer(&body)
    }

    /// Calls `hint` whenever a key that begins with `prefix` may have changed, until the connection is lost. Who depends on a
    /// change looks for it from time to time, too.
    pub(super) async fn watch(&self, prefix: &[u8], hint: impl Fn()) {
        let answer = self.inner.answer("/v3/watch", gateway::watch(prefix)).await;
        let Ok(mut answer) = answer else { return };
        let body = answer.response.body_mut();
        while let Some(Ok(frame)) = body.frame().await {
            // Also called for the answer that says that the watch has begun: a change before it has no message.
            if frame.is_data() {
                hint();
            }
        }
    }
}

impl EtcdClient {
    /// Runs a request in the runtime of the client, and blocks until it is done.
    fn wait_for<T: Send + 'static>(
        &self,
        request: impl Future<Output = Result<T, EtcdError>> + Send + 'static,
    ) -> Result<T, EtcdError> {
        let (answered, answer) = oneshot::channel();
        self.runtime.spawn(async move {
            // The caller waits for ever, or its runtime is gone.
            let _ = answered.send(request.await);
        });
        answer.blocking_recv().unwrap_or_else(|_| Err(EtcdError::Unknown("the process ends".to_owned())))
    }
}

impl Etcd for EtcdClient {
    fn transact(&self, transaction: &Transaction) -> Result<Answer, EtcdError> {
        let (client, transaction) = (self.clone(), transaction.clone());
        self.wait_for(async move { client.transaction(&transaction).await })
    }

    fn compact(&self, revision: i64) -> Result<(), EtcdError> {
        let inner = Arc::clone(&self.inner);
        let request = async move { inner.request("/v3/kv/compaction", gateway::compaction(revision)).await };
        match self.wait_for(request) {
            Err(EtcdError::Refused(reason)) if reason.contains("has been compacted") => Ok(()),
            compacted => compacted.map(drop),
        }
    }
}

impl Inner {
    fn endpoints(&self) -> Arc<[Endpoint]> {
        Arc::clone(&self.endpoints.read())
    }

    /// How long an endpoint may take to answer now.
    fn answer_max(&self) -> Duration {
        if self.patience.is_on.load(Relaxed) { self.answer_max * 2 } else { self.answer_max }
    }

    /// Sends a request, and returns the body of the answer.
    async fn request(&self, path: &'static str, body: Bytes) -> Result<Bytes, EtcdError> {
        let read = async { self.read(self.answer(path, body).await?).await };
        timeout(2 * self.answer_max + BODY_MAX + LOGIN_MAX, read).await.unwrap_or_else(|_| {
            self.go_on();
            Err(EtcdError::Unknown("it is too slow".to_owned()))
        })
    }

    /// Reads the body of an answer, and keeps the connection.
    async fn read(&self, answer: Answered) -> Result<Bytes, EtcdError> {
        let body = Limited::new(answer.response.into_body(), ANSWER_BYTES_MAX).collect();
        let body = timeout(BODY_MAX, body).await.map_err(|_| unknown("the answer does not end"))?;
        let body = body.map_err(unknown)?.to_bytes();
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push((answer.endpoint, answer.sender));
        }
        Ok(body)
    }

    /// Sends a request, after a login if one is needed, and returns an answer with status 200.
    async fn answer(&self, path: &'static str, body: Bytes) -> Result<Answered, EtcdError> {
        let mut has_logged_in = false;
        loop {
            if !self.login.0.is_empty() && self.token.lock().is_none() {
                self.log_in().await?;
                has_logged_in = true;
            }
            let token = self.token.lock().clone();
            match self.ask((path, self.answer_max()), body.clone(), token).await? {
                Ok(answer) => return Ok(answer),
                // Tokens end after some time, and with the endpoint that has given them.
                Err(Failure::Login(_)) if !has_logged_in && !self.login.0.is_empty() => {
                    *self.token.lock() = None;
                }
                Err(Failure::Login(reason) | Failure::Refused(reason)) => {
                    return Err(EtcdError::Refused(reason));
                }
                Err(Failure::Elsewhere(reason)) => {
                    self.go_on();
                    return Err(EtcdError::Unknown(reason));
                }
            }
        }
    }

    async fn log_in(&self) -> Result<(), EtcdError> {
        let (user, password) = &self.login;
        let asked = self.ask(("/v3/auth/authenticate", LOGIN_MAX), gateway::login(user, password), None);
        let answer = asked.await?.map_err(|failure| match failure {
            Failure::Login(reason) | Failure::Refused(reason) => EtcdError::Refused(reason),
            Failure::Elsewhere(reason) => EtcdError::Unknown(reason),
        })?;
        let token = gateway::token(&self.read(answer).await?)?;
        let mut token = HeaderValue::from_str(&token).map_err(unknown)?;
        token.set_sensitive(true);
        *self.token.lock() = Some(token);
        Ok(())
    }

    /// Sends a request to the first endpoint that can be reached, which has so long to answer.
    async fn ask(
        &self,
        to: (&'static str, Duration),
        body: Bytes,
        token: Option<HeaderValue>,
    ) -> Result<Result<Answered, Failure>, EtcdError> {
        let mut reasons = Vec::new();
        let endpoints = self.endpoints();
        for _ in &*endpoints {
            match self.ask_one(&endpoints, to, body.clone(), token.clone()).await {
                Ok(answer) if answer.response.status().as_u16() == 200 => return Ok(Ok(answer)),
                Ok(answer) => {
                    let status = answer.response.status().as_u16();
                    return Ok(Err(gateway::failure(status, &self.read(answer).await?)));
                }
                Err(Missed::Unsent(reason)) => {
                    self.go_on();
                    reasons.push(reason);
                }
                Err(Missed::Unknown(reason)) => {
                    self.go_on();
                    return Err(EtcdError::Unknown(reason));
                }
            }
        }
        Err(EtcdError::Unknown(reasons.join("; ")))
    }

    async fn ask_one(
        &self,
        endpoints: &[Endpoint],
        (path, answer_max): (&'static str, Duration),
        body: Bytes,
        token: Option<HeaderValue>,
    ) -> Result<Answered, Missed> {
        let endpoint = &endpoints[self.current.load(Relaxed) % endpoints.len()];
        let named = |error: &dyn fmt::Display| format!("{}: {error}", endpoint.authority());
        let kept = loop {
            let Some((to, mut sender)) = self.idle.lock().pop() else { break None };
            if to == *endpoint && sender.ready().await.is_ok() {
                break Some(sender);
            }
        };
        let mut sender = match kept {
            Some(sender) => sender,
            None => {
                let is_patient = self.patience.is_on.load(Relaxed);
                let limit = if is_patient { answer_max.max(CONNECT_MAX) } else { CONNECT_MAX };
                endpoint.connect(&self.trust, limit).await.map_err(|error| {
                    if error.kind() == io::ErrorKind::TimedOut {
                        self.patience.note_miss(endpoints.len());
                    }
                    Missed::Unsent(named(&error))
                })?
            }
        };
        let mut request = Request::post(path).header(HOST, endpoint.authority());
        request = request.header(CONTENT_TYPE, "application/json");
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, token);
        }
        let request = request.body(Full::new(body)).map_err(|error| Missed::Unsent(named(&error)))?;
        let begun = Instant::now();
        let answer = timeout(answer_max, sender.try_send_request(request)).await;
        let answer = answer.map_err(|_| {
            self.patience.note_miss(endpoints.len());
            Missed::Unknown(named(&"no answer in time"))
        })?;
        self.patience.note_answer(begun.elapsed() < self.answer_max / 2);
        let response = answer.map_err(|mut error| match error.take_message() {
            Some(_) => Missed::Unsent(named(&causes(error.error()))),
            None => Missed::Unknown(named(&causes(error.error()))),
        })?;
        Ok(Answered { response, endpoint: endpoint.clone(), sender })
    }

    /// The next request goes to the next endpoint.
    fn go_on(&self) {
        self.current.fetch_add(1, Relaxed);
    }
}

/// An error with what has caused it: the alert of TLS, for example.
fn causes(error: &dyn Error) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

fn unknown(reason: impl fmt::Display) -> EtcdError {
    EtcdError::Unknown(reason.to_string())
}
