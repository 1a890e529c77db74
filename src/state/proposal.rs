//! What CONFIG SET is about to set, for whoever has to try it out first.
//!
//! Rule    values that have passed their rows are proposed together, and stored together once nobody objects.

use parking_lot::RwLock;

use super::settings::{SettingError, Settings, shown};

/// Settings as they would be.
pub struct Proposal<'s> {
    settings: &'s Settings,
    changes: &'s [(&'static str, String)],
}

/// Who is asked.
#[derive(Default)]
pub(super) struct Judge(RwLock<Vec<Judgement>>);

type Judgement = Box<dyn Fn(&Proposal<'_>) -> Result<(), SettingError> + Send + Sync>;

impl<'s> Proposal<'s> {
    pub(super) fn new(settings: &'s Settings, changes: &'s [(&'static str, String)]) -> Self {
        Self { settings, changes }
    }

    /// The first setting to be set whose name begins with `prefix`.
    pub fn first(&self, prefix: &str) -> Option<&'static str> {
        self.changes.iter().map(|(name, _)| *name).find(|name| name.starts_with(prefix))
    }

    /// The value that a setting would have.
    ///
    /// # Panics
    /// As [`Settings::text`].
    pub fn text(&self, name: &'static str) -> String {
        let change = self.changes.iter().find(|(changed, _)| *changed == name);
        change.map_or_else(|| self.settings.text(name), |(_, value)| value.clone())
    }
}

impl std::fmt::Debug for Proposal<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.changes.iter().map(|(name, value)| (name, shown(name, value)))).finish()
    }
}

impl Judge {
    /// Asks `judgement` from now on, before those that are asked already.
    pub(super) fn appoint(
        &self,
        judgement: impl Fn(&Proposal<'_>) -> Result<(), SettingError> + Send + Sync + 'static,
    ) {
        self.0.write().push(Box::new(judgement));
    }

    pub(super) fn hear(&self, proposal: &Proposal<'_>) -> Result<(), SettingError> {
        self.0.read().iter().rev().try_for_each(|judgement| judgement(proposal))
    }
}

impl std::fmt::Debug for Judge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Judge({} asked)", self.0.read().len())
    }
}
