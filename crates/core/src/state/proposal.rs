//! The settings that CONFIG SET is about to change, for validators that try them out before they are stored.
//!
//! Rule    values that fit their rows are validated together, and stored together if no validator refuses.

use parking_lot::RwLock;

use super::setting_value::{Handle, Value, number};
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

    /// The first of these settings that is to be changed, in the order of the change.
    pub fn first<T>(&self, handles: &[Handle<T>]) -> Option<Handle<T>> {
        let handle = |changed: &str| handles.iter().copied().find(|handle| handle.name() == changed);
        self.changes.iter().find_map(|(changed, _)| handle(changed))
    }

    /// The value that a setting would have.
    pub fn get<T: Value>(&self, handle: Handle<T>) -> T {
        let row = handle.row();
        match self.changes.iter().rfind(|(changed, _)| *changed == row.name) {
            Some((_, value)) => T::read(|| number(row.kind, value), || value.clone()),
            None => self.settings.get(handle),
        }
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
