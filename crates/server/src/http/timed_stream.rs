//! A stream whose writes fail if the peer does not read for too long, and whose place knows when a response has left.
//!
//! Rule    hyper limits the time of reads only; without this limit a peer that reads nothing keeps its connection for ever.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::limits::WRITE_WAIT_MAX;
use super::places::Place;

/// A stream with a limit of [`WRITE_WAIT_MAX`] on each write that waits.
#[derive(Debug)]
pub(super) struct TimedStream<S> {
    stream: S,
    place: Arc<Place>,
    /// When a write that waits fails; `None` while none waits.
    limit: Option<Pin<Box<Sleep>>>,
}

impl<S> TimedStream<S> {
    pub(super) fn new(stream: S, place: Arc<Place>) -> Self {
        Self { stream, place, limit: None }
    }

    /// Passes on the result of a write, or fails it once it has waited for too long.
    fn limited<T>(&mut self, write: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if write.is_ready() {
            self.limit = None;
            return write;
        }
        let limit = self.limit.get_or_insert_with(|| Box::pin(sleep(WRITE_WAIT_MAX)));
        ready!(limit.as_mut().poll(cx));
        self.limit = None;
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.limited(write, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.limited(write, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flush = Pin::new(&mut self.stream).poll_flush(cx);
        if flush.is_ready() {
            self.place.flushed();
        }
        self.limited(flush, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shutdown = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.limited(shutdown, cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_nothing_is_given_up_and_one_that_reads_is_not() {
        let (ours, mut theirs) = tokio::io::duplex(4);
        let taken = super::super::places::Places::default().take(0).unwrap();
        let mut stream = TimedStream::new(ours, Arc::clone(taken.place()));
        stream.write_all(b"1234").await.unwrap();
        let started = Instant::now();
        assert_eq!(stream.write_all(b"5").await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(started.elapsed(), WRITE_WAIT_MAX);

        let reads = tokio::spawn(async move {
            for _ in 0..10 {
                tokio::time::sleep(WRITE_WAIT_MAX - std::time::Duration::from_secs(1)).await;
                tokio::io::AsyncReadExt::read_exact(&mut theirs, &mut [0; 4]).await.unwrap();
            }
        });
        stream.write_all(&[b'x'; 36]).await.unwrap();
        reads.await.unwrap();
    }
}
