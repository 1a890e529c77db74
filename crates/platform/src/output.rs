//! Writing where somebody may not read: the standard output, and whether a write would wait.

use std::fs::File;
use std::io;

/// The standard output, as a file of its own.
///
/// # Errors
/// The process has no descriptor left.
pub fn stdout() -> io::Result<File> {
    #[cfg(unix)]
    let own = std::os::fd::AsFd::as_fd(&io::stdout()).try_clone_to_owned();
    #[cfg(windows)]
    let own = std::os::windows::io::AsHandle::as_handle(&io::stdout()).try_clone_to_owned();
    own.map(File::from)
}

/// Whether a write to the file does not wait. An error of the file is one of the write.
#[cfg(unix)]
pub fn takes_bytes(file: &File) -> bool {
    use std::os::fd::AsFd;

    use nix::errno::Errno;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    loop {
        let mut asked = [PollFd::new(file.as_fd(), PollFlags::POLLOUT)];
        match poll(&mut asked, PollTimeout::ZERO) {
            Err(Errno::EINTR) => {}
            answer => return answer != Ok(0),
        }
    }
}

/// Whether a write to the file does not wait: the system does not tell.
#[cfg(not(unix))]
pub fn takes_bytes(_: &File) -> bool {
    true
}
