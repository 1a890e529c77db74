//! The client of etcd, over gRPC.
//!
//! Owns    the connection to the endpoint that answers, which carries all calls side by side, and the token of the login.
//! Rule    an endpoint has half of `cluster-takeover` to answer, so that another one can before another node leads. If none
//!         does, all of them have twice that time.
//! Rule    an error whose call may have been carried out is [`EtcdError::Unknown`]; the next call goes to another endpoint. A
//!         call is sent twice only where the first one was refused for its token.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use http::uri::PathAndQuery;
use parking_lot::{Mutex, RwLock};
use redlatch_client::Trust;
use redlatch_core::replication::etcd::{Answer, Etcd, EtcdError, Transaction};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_stream::{StreamExt, once, pending};
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::commits::Commits;
use super::endpoint::{Connection, Endpoint};
use super::rpc::{self, Call, CompactionRequest, Failure, TxnRequest, WatchRequest};

/// How long a connection to an endpoint may take, with TLS: another endpoint is quicker then.
const CONNECT_MAX: Duration = Duration::from_millis(500);
/// How long the message of an answer may take: some megabytes of the log.
const MESSAGE_MAX: Duration = Duration::from_secs(2);
/// How long a login may take: etcd hashes the password on purpose.
const LOGIN_MAX: Duration = Duration::from_secs(5);
/// The longest message: some entries of a megabyte.
const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// The name of the token, among the metadata of a call.
const TOKEN: &str = "token";

/// A client of etcd. Clones share the connection.
#[derive(Clone)]
pub(super) struct EtcdClient {
    inner: Arc<Inner>,
    runtime: Handle,
}

struct Inner {
    endpoints: RwLock<Arc<[Endpoint]>>,
    /// The endpoint of the next call, modulo their number.
    current: AtomicUsize,
    trust: Trust,
    /// User and password; without a user there is no login.
    login: (String, String),
    token: Mutex<Option<MetadataValue<Ascii>>>,
    /// How long an endpoint may take to answer. etcd itself gives up after seven seconds; another endpoint may be quicker.
    answer_max: Duration,
    patience: Patience,
    commits: Commits,
    /// With the endpoint that it leads to.
    connection: Mutex<Option<(Endpoint, Connection)>>,
}

/// Whether calls have twice the time: no endpoint answers in the usual one.
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

/// Why one endpoint has not answered.
enum Missed {
    /// The call has not reached it.
    Unsent(String),
    /// There is no answer: it has not come in time, or the connection has ended.
    Lost(String),
    /// It has failed.
    Failed(Status),
}

impl EtcdClient {
    /// A client whose calls run in the runtime that is entered. Nothing is connected before the first call.
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
            commits: Commits::default(),
            connection: Mutex::default(),
        };
        Self { inner: Arc::new(inner), runtime: Handle::current() }
    }

    /// Asks these endpoints from now on.
    pub(super) fn set_endpoints(&self, endpoints: Vec<Endpoint>) {
        *self.inner.endpoints.write() = endpoints.into();
        *self.inner.connection.lock() = None;
    }

    /// Carries out a transaction.
    ///
    /// # Errors
    /// [`EtcdError`]
    pub(super) async fn transaction(&self, transaction: &Transaction) -> Result<Answer, EtcdError> {
        self.inner.answer(TxnRequest::from(transaction)).await.map(Answer::from)
    }

    /// Calls `hint` whenever a key that begins with `prefix` may have changed, until the connection is lost. Who depends on a
    /// change looks for it from time to time, too.
    pub(super) async fn watch(&self, prefix: &[u8], hint: impl Fn()) {
        let Ok(mut changes) = self.inner.call(WatchRequest::of_prefix(prefix)).await else { return };
        // The first message says that the watch has begun: a change before it has no message.
        while let Ok(Some(_)) = changes.message().await {
            hint();
        }
    }
}

impl EtcdClient {
    /// Runs a call in the runtime of the client, and blocks until it is done.
    fn wait_for<T: Send + 'static>(
        &self,
        call: impl Future<Output = Result<T, EtcdError>> + Send + 'static,
    ) -> Result<T, EtcdError> {
        let (answered, answer) = oneshot::channel();
        self.runtime.spawn(async move {
            // The caller waits for ever, or its runtime is gone.
            let _ = answered.send(call.await);
        });
        answer.blocking_recv().unwrap_or_else(|_| Err(ended()))
    }
}

impl Etcd for EtcdClient {
    fn transact(&self, transaction: &Transaction) -> Result<Answer, EtcdError> {
        let (client, transaction) = (self.clone(), transaction.clone());
        self.wait_for(async move { client.transaction(&transaction).await })
    }

    fn commit(&self, transaction: Transaction) -> Result<Answer, EtcdError> {
        let (answer, turn) = self.inner.commits.add(transaction);
        if let Some(turn) = turn {
            let inner = Arc::clone(&self.inner);
            self.runtime.spawn(async move { turn.send(|call| inner.answer(call)).await });
        }
        answer.blocking_recv().unwrap_or_else(|_| Err(ended()))
    }

    fn compact(&self, revision: i64) -> Result<(), EtcdError> {
        let inner = Arc::clone(&self.inner);
        match self.wait_for(async move { inner.answer(CompactionRequest { revision }).await }) {
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

    /// The one answer to a call.
    async fn answer<C: Call>(&self, call: C) -> Result<C::Answer, EtcdError> {
        let answer = async { self.read(self.call(call).await?).await };
        timeout(2 * self.answer_max + MESSAGE_MAX + LOGIN_MAX, answer).await.unwrap_or_else(|_| {
            self.go_on();
            Err(unknown("it is too slow"))
        })
    }

    /// Reads the one message of an answer, and its end.
    async fn read<M>(&self, mut answer: Streaming<M>) -> Result<M, EtcdError> {
        let message = async {
            let message = answer.message().await?;
            answer.trailers().await?;
            Ok(message)
        };
        match timeout(MESSAGE_MAX, message).await {
            Ok(Ok(Some(message))) => Ok(message),
            Ok(Ok(None)) => Err(unknown("an answer without a message")),
            Ok(Err(status)) => Err(self.error(rpc::failure(&status))),
            Err(_) => Err(self.error(Failure::Elsewhere("the answer does not end".to_owned()))),
        }
    }

    /// Begins a call, after a login if one is needed, and returns an answer that is no error.
    async fn call<C: Call>(&self, call: C) -> Result<Streaming<C::Answer>, EtcdError> {
        let mut has_logged_in = false;
        loop {
            if !self.login.0.is_empty() && self.token.lock().is_none() {
                self.log_in().await?;
                has_logged_in = true;
            }
            let token = self.token.lock().clone();
            match self.ask(&call, self.answer_max(), token).await? {
                Ok(answer) => return Ok(answer),
                // Tokens end after some time, and with the endpoint that has given them.
                Err(Failure::Login(_)) if !has_logged_in && !self.login.0.is_empty() => {
                    *self.token.lock() = None;
                }
                Err(failure) => return Err(self.error(failure)),
            }
        }
    }

    /// The error of a call that has failed, and is not sent again.
    fn error(&self, failure: Failure) -> EtcdError {
        match failure {
            Failure::Login(reason) | Failure::Refused(reason) => EtcdError::Refused(reason),
            Failure::Elsewhere(reason) => {
                self.go_on();
                EtcdError::Unknown(reason)
            }
        }
    }

    async fn log_in(&self) -> Result<(), EtcdError> {
        let (name, password) = self.login.clone();
        let call = rpc::AuthenticateRequest { name, password };
        let answer = self.ask(&call, LOGIN_MAX, None).await?.map_err(|failure| self.error(failure))?;
        let mut token = MetadataValue::try_from(self.read(answer).await?.token).map_err(unknown)?;
        token.set_sensitive(true);
        *self.token.lock() = Some(token);
        Ok(())
    }

    /// Sends a call to the first endpoint that can be reached, which has so long to answer.
    async fn ask<C: Call>(
        &self,
        call: &C,
        answer_max: Duration,
        token: Option<MetadataValue<Ascii>>,
    ) -> Result<Result<Streaming<C::Answer>, Failure>, EtcdError> {
        let mut reasons = Vec::new();
        let endpoints = self.endpoints();
        for _ in &*endpoints {
            let endpoint = &endpoints[self.current.load(Relaxed) % endpoints.len()];
            let named = |reason: &str| format!("{}: {reason}", endpoint.authority());
            match self.ask_one((endpoint, endpoints.len()), call.clone(), answer_max, token.clone()).await {
                Ok(answer) => return Ok(Ok(answer)),
                Err(Missed::Unsent(reason)) => reasons.push(named(&reason)),
                Err(Missed::Lost(reason)) => {
                    self.go_on();
                    return Err(EtcdError::Unknown(named(&reason)));
                }
                Err(Missed::Failed(status)) => return Ok(Err(rpc::failure(&status))),
            }
            self.go_on();
        }
        Err(EtcdError::Unknown(reasons.join("; ")))
    }

    /// Sends a call to an endpoint, one of so many.
    async fn ask_one<C: Call>(
        &self,
        (endpoint, count): (&Endpoint, usize),
        call: C,
        answer_max: Duration,
        token: Option<MetadataValue<Ascii>>,
    ) -> Result<Streaming<C::Answer>, Missed> {
        let connection = self.connection(endpoint, answer_max).await.map_err(|error| {
            if error.kind() == io::ErrorKind::TimedOut {
                self.patience.note_miss(count);
            }
            Missed::Unsent(rpc::causes(&error))
        })?;
        // etcd ends its answers where the caller has no more to say.
        let more = pending().take(usize::from(C::IS_OPEN));
        let mut request = Request::new(once(call).chain(more));
        if let Some(token) = token {
            request.metadata_mut().insert(TOKEN, token);
        }
        let grpc = Grpc::with_origin(connection.clone(), endpoint.origin());
        let mut grpc = grpc.max_decoding_message_size(MESSAGE_BYTES_MAX);
        let path = PathAndQuery::from_static(C::PATH);
        let codec = ProstCodec::<C, C::Answer>::default();
        let begun = Instant::now();
        let Ok(answer) = timeout(answer_max, grpc.streaming(request, path, codec)).await else {
            self.patience.note_miss(count);
            *self.connection.lock() = None;
            return Err(Missed::Lost("no answer in time".to_owned()));
        };
        self.patience.note_answer(begun.elapsed() < self.answer_max / 2);
        match answer {
            Ok(answer) => Ok(answer.into_inner()),
            Err(status) => match connection.reason().await {
                Some(reason) => Err(Missed::Lost(reason)),
                None => Err(Missed::Failed(status)),
            },
        }
    }

    /// The connection to an endpoint, which may have so long to open.
    async fn connection(&self, endpoint: &Endpoint, answer_max: Duration) -> io::Result<Connection> {
        let kept = self.connection.lock().clone();
        if let Some((_, connection)) = kept.filter(|(to, kept)| to == endpoint && !kept.is_closed()) {
            return Ok(connection);
        }
        let is_patient = self.patience.is_on.load(Relaxed);
        let limit = if is_patient { answer_max.max(CONNECT_MAX) } else { CONNECT_MAX };
        let connection = endpoint.connect(&self.trust, limit).await?;
        *self.connection.lock() = Some((endpoint.clone(), connection.clone()));
        Ok(connection)
    }

    /// The next call goes to the next endpoint.
    fn go_on(&self) {
        self.current.fetch_add(1, Relaxed);
    }
}

/// What a call is told whose runtime is gone.
fn ended() -> EtcdError {
    EtcdError::Unknown("the process ends".to_owned())
}

fn unknown(reason: impl fmt::Display) -> EtcdError {
    EtcdError::Unknown(reason.to_string())
}
