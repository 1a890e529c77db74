//! The wire: a socket as a connection reads from it and writes to it.
//!
//! Why     the C library's `recv` and `send` are places where a thread may be cancelled, and in a process that has ever had
//!         two threads each of them makes two atomic changes to be ready for that: some hundred and thirty cycles of a plain
//!         request. No thread here is ever cancelled, so the system is called without the C library.
//! Rule    whoever has received less than there was room for, or sent less than there was, does not try again before the
//!         system has said that it is worth it.
//! Source  `epoll(7)`: of a stream in edge-triggered mode that much may be concluded.

use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::io::retry_on_intr;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// A stream of sockets that the runtime watches.
pub(super) trait Watched: AsFd + Unpin {
    /// Ready once something has come, or the end.
    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Ready once there is room for something to be sent.
    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Does it, unless that is known to be in vain. The stream is ready no more if that says `WouldBlock`.
    fn try_io(&self, interest: Interest, act: impl FnOnce() -> io::Result<()>) -> io::Result<()>;
}

macro_rules! watched {
    ($stream:ty) => {
        impl Watched for $stream {
            fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.poll_read_ready(cx)
            }

            fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.poll_write_ready(cx)
            }

            fn try_io(&self, interest: Interest, act: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
                self.try_io(interest, act)
            }
        }
    };
}

watched!(TcpStream);
watched!(UnixStream);

/// A peer that has gone is an error, and no signal. Where the system has no such flag, sockets say so since they were made.
#[cfg(not(target_vendor = "apple"))]
const TO_SEND: SendFlags = SendFlags::NOSIGNAL;
#[cfg(target_vendor = "apple")]
const TO_SEND: SendFlags = SendFlags::empty();

/// A connected socket.
#[derive(Debug)]
pub(super) struct Wire<S>(pub(super) S);

impl<S: Watched> Wire<S> {
    /// Moves bytes once, as many as there are or `most`; `None` when there is nothing to move now.
    #[inline]
    fn once(
        &self,
        interest: Interest,
        most: usize,
        act: impl FnOnce() -> rustix::io::Result<usize>,
    ) -> io::Result<Option<usize>> {
        let mut moved = None;
        let tried = self.0.try_io(interest, || {
            let count = act()?;
            moved = Some(count);
            // There is no more for now. What the system says meanwhile is not forgotten with what it has said before.
            if (1..most).contains(&count) { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        });
        match tried {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(moved),
        }
    }
}

impl<S: Watched> AsyncRead for Wire<S> {
    #[allow(unsafe_code)]
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            // SAFETY: nothing in there is made uninitialized again: it is only handed to the system, to be written to.
            let empty = unsafe { room.unfilled_mut() };
            let received = self.once(Interest::READABLE, empty.len(), || {
                retry_on_intr(|| {
                    recv(&self.0, &mut *empty, RecvFlags::empty()).map(|((bytes, _), _)| bytes.len())
                })
            })?;
            if let Some(count) = received {
                // SAFETY: so many bytes at the front have been written to by the system.
                unsafe { room.assume_init(count) };
                room.advance(count);
                return Poll::Ready(Ok(()));
            }
            ready!(self.0.poll_read_ready(cx))?;
        }
    }
}

impl<S: Watched> AsyncWrite for Wire<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let sent = || retry_on_intr(|| send(&self.0, bytes, TO_SEND));
            if let Some(count) = self.once(Interest::WRITABLE, bytes.len(), sent)? {
                return Poll::Ready(Ok(count));
            }
            ready!(self.0.poll_write_ready(cx))?;
        }
    }

    /// What has been sent lies with the system.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(shutdown(&self.0, Shutdown::Write).map_err(Into::into))
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::Waker;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    async fn pair() -> (Wire<TcpStream>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let theirs = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (Wire(listener.accept().await.unwrap().0), theirs)
    }

    #[tokio::test]
    async fn all_that_is_sent_arrives_however_often_the_socket_is_full() {
        let (mut ours, mut theirs) = pair().await;
        let sent: Vec<u8> = (0..20_000_000_u32).map(|at| (at % 251) as u8).collect();
        let mut received = vec![0; sent.len()];
        let (sending, receiving) = tokio::join!(ours.write_all(&sent), theirs.read_exact(&mut received));
        assert!(sending.is_ok() && receiving.is_ok() && received == sent);
        let (sending, receiving) = tokio::join!(theirs.write_all(&sent), ours.read_exact(&mut received));
        assert!(sending.is_ok() && receiving.is_ok() && received == sent);
    }

    #[tokio::test]
    async fn whoever_waits_after_a_short_read_hears_what_comes_and_the_end() {
        let (mut ours, mut theirs) = pair().await;
        let mut room = [0; 64];
        for word in [&b"first"[..], b"second"] {
            theirs.write_all(word).await.unwrap();
            assert_eq!(ours.read(&mut room).await.unwrap(), word.len());
            assert!(pin!(ours.read(&mut room)).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        theirs.write_all(b"last").await.unwrap();
        theirs.shutdown().await.unwrap();
        assert_eq!(ours.read(&mut room).await.unwrap(), 4);
        assert_eq!(ours.read(&mut room).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_peer_that_has_gone_is_an_error() {
        let (mut ours, theirs) = pair().await;
        theirs.set_zero_linger().unwrap();
        drop(theirs);
        assert_eq!(ours.read(&mut [0; 1]).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(ours.write(b"x").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert!(ours.shutdown().await.is_err());
    }
}
