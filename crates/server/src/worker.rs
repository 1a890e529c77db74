//! The workers: threads that serve connections, each with a tokio runtime.
//!
//! Rule    a connection is one task and stays on its worker. Connections of one worker wake each other without a
//!         system call, because woken tasks run before the worker waits for sockets again. So one thread is the
//!         default: a second thread raises throughput, but a hand-off between threads takes a system call and a
//!         context switch.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};

/// How long the script thread stays after its last script. Every system call on a socket costs more while a process
/// has a second thread.
const SCRIPT_THREAD_KEPT: Duration = Duration::from_millis(100);

/// The runtimes of the workers. New connections are assigned in turn.
#[derive(Debug)]
pub(super) struct Workers {
    pub(super) runtimes: Vec<Handle>,
    next: AtomicUsize,
}

impl Workers {
    pub(super) fn new(runtimes: &[Handle]) -> Self {
        Self { runtimes: runtimes.to_vec(), next: AtomicUsize::new(0) }
    }

    /// Resolves when every worker has run a task since the call.
    pub(super) async fn answer(&self) {
        for runtime in &self.runtimes {
            // A runtime that has ended does not run its tasks, and is no worker any more.
            let _ = runtime.spawn(std::future::ready(())).await;
        }
    }

    /// The runtime of the next worker.
    pub(super) fn next(&self) -> &Handle {
        &self.runtimes[self.next.fetch_add(1, Relaxed) % self.runtimes.len()]
    }

    /// Spawns a connection on the next worker. `open` runs in the context of that worker's runtime, because sockets
    /// register with it. An error of `open` drops the connection.
    pub(super) fn spawn<C>(&self, open: impl FnOnce() -> io::Result<C>)
    where
        C: Future<Output = ()> + Send + 'static,
    {
        let runtime = self.next();
        let _context = runtime.enter();
        match open() {
            Ok(connection) => drop(runtime.spawn(connection)),
            Err(error) => tracing::debug!(%error, "cannot open a connection"),
        }
    }
}

/// The threads that a server has started.
#[derive(Clone, Debug, Default)]
pub(super) struct Threads(Arc<Mutex<Vec<JoinHandle<()>>>>);

impl Threads {
    /// Starts a worker: a thread that drives `runtime` until `end` resolves.
    pub(super) fn start(
        &self,
        runtime: Runtime,
        end: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        let name = format!("redlatch-{}", self.0.lock().len());
        self.start_named(name, runtime, end)
    }

    /// Starts a thread of this name that drives `runtime` until `end` resolves.
    pub(super) fn start_named(
        &self,
        name: String,
        runtime: Runtime,
        end: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        let thread = std::thread::Builder::new().name(name);
        self.0.lock().push(thread.spawn(move || {
            runtime.block_on(end);
            runtime.shutdown_background();
        })?);
        Ok(())
    }

    /// Waits until all threads have ended. The panic hook has reported their panics.
    pub(super) fn join(&self) {
        for thread in std::mem::take(&mut *self.0.lock()) {
            let _ = thread.join();
        }
    }
}

/// The runtime of one worker.
///
/// # Errors
/// The system has no descriptor left for it.
pub fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().thread_keep_alive(SCRIPT_THREAD_KEPT).enable_all().build()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpStream;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use crate::Server;

    /// A connection that reads what it expects, byte for byte.
    struct Peer(BufReader<TcpStream>);

    impl Peer {
        fn connect(server: &Server) -> Self {
            let stream = TcpStream::connect(server.addr()).unwrap();
            stream.set_nodelay(true).unwrap();
            Self(BufReader::new(stream))
        }

        fn send(&mut self, request: &str) {
            self.0.get_mut().write_all(request.as_bytes()).unwrap();
        }

        #[track_caller]
        fn expect(&mut self, reply: &str) {
            let mut received = vec![0; reply.len()];
            self.0.read_exact(&mut received).unwrap();
            assert_eq!(String::from_utf8_lossy(&received), reply);
        }

        fn line(&mut self) -> String {
            let mut line = String::new();
            self.0.read_line(&mut line).unwrap();
            line
        }
    }

    /// A server with two workers, which take connections in turn: the first two connections are on different workers.
    fn server() -> Server {
        Server::builder().start_on_threads(2).unwrap()
    }

    const TRIES: usize = 3_000;

    #[test]
    fn a_message_that_was_published_before_a_request_leaves_before_its_reply() {
        let server = server();
        let (mut subscriber, mut publisher) = (Peer::connect(&server), Peer::connect(&server));
        subscriber.send("SUBSCRIBE news\r\n");
        subscriber.expect("*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n");
        for _ in 0..TRIES {
            publisher.send("PUBLISH news x\r\n");
            publisher.expect(":1\r\n");
            subscriber.send("PING\r\n");
            subscriber
                .expect("*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$1\r\nx\r\n*2\r\n$4\r\npong\r\n$0\r\n\r\n");
        }
    }

    #[test]
    fn an_invalidation_that_was_caused_before_a_request_leaves_before_its_reply() {
        let server = server();
        let (mut reader, mut writer) = (Peer::connect(&server), Peer::connect(&server));
        reader.send("HELLO 3\r\n");
        while reader.line() != "*0\r\n" {}
        reader.send("CLIENT TRACKING ON\r\n");
        reader.expect("+OK\r\n");
        for _ in 0..TRIES {
            reader.send("GET k\r\n");
            let value = reader.line();
            if value != "_\r\n" {
                reader.expect("x\r\n");
            }
            writer.send("SET k x\r\n");
            writer.expect("+OK\r\n");
            reader.send("PING\r\n");
            reader.expect(">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n+PONG\r\n");
        }
    }

    #[tokio::test]
    async fn a_worker_that_hangs_keeps_the_others_from_answering_for_it() {
        let (hung, here) = (super::runtime().unwrap(), super::Handle::current());
        super::Workers::new(std::slice::from_ref(&here)).answer().await;
        let workers = super::Workers::new(&[here, hung.handle().clone()]);
        tokio::select! {
            biased;
            () = workers.answer() => panic!("nothing drives the second runtime"),
            () = async { for _ in 0..100 { tokio::task::yield_now().await } } => {}
        }
        hung.shutdown_background();
        workers.answer().await;
    }

    #[tokio::test]
    async fn a_subscriber_whose_connection_is_closing_is_not_counted() {
        let server = Server::builder().start().await.unwrap();
        let (mut subscriber, mut publisher) = (server.stream(), server.stream());
        let mut buffer = [0; 256];
        subscriber.write_all(b"CLIENT ID\r\nSUBSCRIBE news\r\nPSUBSCRIBE n*\r\n").await.unwrap();
        let mut received = String::new();
        while !received.ends_with(":2\r\n") {
            let length = subscriber.read(&mut buffer).await.unwrap();
            received.push_str(std::str::from_utf8(&buffer[..length]).unwrap());
        }
        let id = received[1..].split("\r\n").next().unwrap();
        // One batch: the subscriber's task cannot run in between.
        let requests = format!("PUBLISH news x\r\nCLIENT KILL ID {id}\r\nPUBLISH news x\r\n");
        publisher.write_all(requests.as_bytes()).await.unwrap();
        let mut replies = [0; 12];
        publisher.read_exact(&mut replies).await.unwrap();
        assert_eq!(&replies, b":2\r\n:1\r\n:0\r\n");
    }
}
