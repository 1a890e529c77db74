//! Waiting to the microsecond, on one thread.
//!
//! Owns    the sleepers of a thread, and one timer of the kernel for the first of them.
//! Rule    tokio's own timers end at whole milliseconds, which is longer than a hold or the interval of a schedule may be.
//!         Systems without timerfd have tokio's timers.

#[cfg(target_os = "linux")]
pub use precise::Timer;

#[cfg(target_os = "linux")]
mod precise {
    use std::cell::RefCell;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;
    use std::future::poll_fn;
    use std::io;
    use std::os::fd::AsFd;
    use std::rc::Rc;
    use std::task::{Poll, Waker};
    use std::time::{Duration, Instant};

    use nix::sys::time::TimeSpec;
    use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
    use tokio::net::unix::pipe::Receiver;

    /// The timer of a thread.
    #[derive(Clone, Debug)]
    pub struct Timer {
        sleepers: Rc<RefCell<Sleepers>>,
        kernel: Rc<TimerFd>,
    }

    #[derive(Debug, Default)]
    struct Sleepers {
        /// By their ends; the number tells those of one end apart.
        queue: BinaryHeap<Reverse<(Instant, u64)>>,
        wakers: std::collections::HashMap<u64, Waker>,
        next: u64,
    }

    impl Timer {
        /// A timer of this thread, whose runtime and local tasks run.
        ///
        /// # Errors
        /// The system has no more descriptors.
        pub fn new() -> io::Result<Self> {
            let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
            let kernel = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
            // This receiver reads any descriptor that does not block.
            let ends = Receiver::from_owned_fd_unchecked(kernel.as_fd().try_clone_to_owned()?)?;
            let timer = Self { sleepers: Rc::default(), kernel: Rc::new(kernel) };
            tokio::task::spawn_local(timer.clone().drive(ends));
            Ok(timer)
        }

        /// Wakes the sleepers whose time has come, for ever.
        async fn drive(self, ends: Receiver) {
            while ends.readable().await.is_ok() {
                // Reading tells the kernel that its timer was seen. If it was set anew since, there is nothing to read.
                let _ = ends.try_read(&mut [0; 8]);
                let now = Instant::now();
                let mut sleepers = self.sleepers.borrow_mut();
                while let Some(Reverse((end, number))) = sleepers.queue.peek().copied() {
                    if end > now {
                        self.arm(now, end);
                        break;
                    }
                    sleepers.queue.pop();
                    if let Some(waker) = sleepers.wakers.remove(&number) {
                        waker.wake();
                    }
                }
            }
        }

        fn arm(&self, now: Instant, end: Instant) {
            // A time of zero would switch the timer off.
            let left = end.saturating_duration_since(now).max(Duration::from_nanos(1));
            let once = Expiration::OneShot(TimeSpec::from_duration(left));
            // It fails for times that no clock has, which `left` is not.
            let _ = self.kernel.set(once, TimerSetTimeFlags::empty());
        }

        /// Returns at this time, or at once if it is over.
        pub async fn sleep_until(&self, end: Instant) {
            let mut sleep = Sleep { timer: self, end, number: None };
            poll_fn(|cx| sleep.poll(cx.waker())).await;
        }
    }

    struct Sleep<'t> {
        timer: &'t Timer,
        end: Instant,
        number: Option<u64>,
    }

    impl Sleep<'_> {
        fn poll(&mut self, waker: &Waker) -> Poll<()> {
            let now = Instant::now();
            if now >= self.end {
                return Poll::Ready(());
            }
            let mut sleepers = self.timer.sleepers.borrow_mut();
            let number = *self.number.get_or_insert_with(|| {
                sleepers.next += 1;
                let number = sleepers.next;
                let is_first = sleepers.queue.peek().is_none_or(|Reverse((first, _))| self.end < *first);
                sleepers.queue.push(Reverse((self.end, number)));
                if is_first {
                    self.timer.arm(now, self.end);
                }
                number
            });
            sleepers.wakers.insert(number, waker.clone());
            Poll::Pending
        }
    }

    impl Drop for Sleep<'_> {
        fn drop(&mut self) {
            // Its place in the queue is dropped when its time comes.
            self.number.map(|number| self.timer.sleepers.borrow_mut().wakers.remove(&number));
        }
    }
}

/// The timer of a thread.
#[cfg(not(target_os = "linux"))]
#[derive(Clone, Debug)]
pub struct Timer;

#[cfg(not(target_os = "linux"))]
impl Timer {
    /// A timer of this thread.
    ///
    /// # Errors
    /// None on this system.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self)
    }

    /// Returns at this time, to the millisecond.
    pub async fn sleep_until(&self, end: std::time::Instant) {
        tokio::time::sleep_until(end.into()).await;
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::time::{Duration, Instant};

    use super::*;

    /// Who wakes, in order: the time of each from a common beginning. `None`: one began too late to sleep.
    async fn woken() -> Option<Vec<u64>> {
        let (timer, woken) = (Timer::new().expect("a timer"), Rc::new(RefCell::new(Vec::new())));
        let start = Instant::now() + Duration::from_millis(10);
        let sleeps = [3_000, 200, 1_500, 0, 200].map(|micros| {
            let (timer, woken) = (timer.clone(), woken.clone());
            tokio::task::spawn_local(async move {
                let end = start + Duration::from_micros(micros);
                timer.sleep_until(end).await;
                assert!(Instant::now() >= end);
                woken.borrow_mut().push(micros);
            })
        });
        // A sleep that is given up does not keep the others from waking.
        let given_up = timer.sleep_until(start + Duration::from_micros(100));
        drop(tokio::time::timeout(Duration::ZERO, given_up).await);
        tokio::task::yield_now().await;
        let is_in_time = Instant::now() < start;
        for sleep in sleeps {
            sleep.await.expect("no sleeper fails");
        }
        is_in_time.then(|| woken.take())
    }

    #[tokio::test]
    async fn sleepers_wake_in_the_order_of_their_ends_and_not_before() {
        let order = async {
            loop {
                if let Some(woken) = woken().await {
                    return woken;
                }
            }
        };
        assert_eq!(tokio::task::LocalSet::new().run_until(order).await, [0, 200, 200, 1_500, 3_000]);
    }
}
