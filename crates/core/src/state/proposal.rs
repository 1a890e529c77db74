//! The settings that CONFIG SET is about to change, for validators that try them out before they are stored.
//!
//! Rule    values that fit their rows are validated together, and stored together if no validator refuses.

use parking_lot::RwLock;

use super::settings::{SettingError, Settings, shown};

/// The settings as they would be after a CONFIG SET.
pub struct Proposal<'s> {
    settings: &'s Settings,
    changes: &'s [(&'static str, String)],
}

/// The validators of one server.
#[derive(Default)]
pub(super) struct Validators(RwLock<Vec<Validator>>);

type Validator = Box<dyn Fn(&Proposal<'_>) -> Result<(), SettingError> + Send + Sync>;

impl<'s> Proposal<'s> {
    pub(super) fn new(settings: &'s Settings, changes: &'s [(&'static str, String)]) -> Self {
        Self { settings, changes }
    }

    /// The first setting to be changed whose name begins with `prefix`.
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

impl Validators {
    /// Adds a validator. It is asked before those that were added earlier.
    pub(super) fn add(
        &self,
        validator: impl Fn(&Proposal<'_>) -> Result<(), SettingError> + Send + Sync + 'static,
    ) {
        self.0.write().push(Box::new(validator));
    }

    /// Asks every validator, up to the first that refuses.
    pub(super) fn validate(&self, proposal: &Proposal<'_>) -> Result<(), SettingError> {
        self.0.read().iter().rev().try_for_each(|validator| validator(proposal))
    }
}
