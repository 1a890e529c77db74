//! Ends an interpreted script when SCRIPT KILL or the end of the server asks for it.

use crate::scripts::lua::{Verdict, Watchdog};
use crate::state::running::Running;

impl Watchdog for Running {
    fn poll(&self) -> Verdict {
        if self.is_killed() { Verdict::Kill } else { Verdict::GoOn }
    }
}
