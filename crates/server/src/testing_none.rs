//! Stands in for `testing` in a build without the feature: TEST commands are unknown, and no setting turns them on.

use std::sync::Arc;

use redlatch_core::engine::{Batch, Engine, Flow};
use redlatch_core::state::clients::{Client, ClientId};
use redlatch_core::state::session::Session;
use redlatch_core::state::settings::{self, Settings};
use redlatch_proto::clock::WallTime;
use redlatch_proto::resp::Request;

use super::StartError;
use super::blueprint::Blueprint;
use super::context::ServerContext;
use super::processor::State;

pub(super) use redlatch_core::commands::table as commands;

/// Whether the settings ask for namespaces.
pub(super) fn is_wanted(settings: &Settings) -> bool {
    check(settings).is_err()
}

/// # Errors
/// The settings ask for TEST commands, or for several nodes.
pub(super) fn check(settings: &Settings) -> Result<(), StartError> {
    let (open_to, nodes) = (settings.get(settings::ENABLE_TEST_COMMANDS), settings.get(settings::NODES));
    if open_to != "no" {
        let text = format!("enable-test-commands '{open_to}': this build has no test commands");
        return Err(StartError::Unusable(text));
    }
    match nodes {
        0 | 1 => Ok(()),
        _ => Err(StartError::Unusable(format!("nodes '{nodes}': this build has no test commands"))),
    }
}

/// The namespaces of a server: a value that cannot exist.
#[derive(Debug)]
pub(super) enum Tests {}

impl Tests {
    /// # Errors
    /// Always.
    pub(super) fn start(_: Blueprint, settings: &Settings, _: Option<WallTime>) -> Result<Self, StartError> {
        check(settings)?;
        Err(StartError::Unusable("this build has no clock of a test".to_owned()))
    }

    pub(super) fn contexts(&self) -> Vec<ServerContext> {
        match *self {}
    }

    pub(super) fn set_port(&self, _: usize, _: u16) {
        match *self {}
    }
}

/// The node of a namespace: a value that cannot exist.
#[derive(Debug)]
pub(super) enum Membership {}

impl Membership {
    pub(super) fn is_frozen(&self) -> bool {
        match *self {}
    }

    pub(super) fn clock_step(&self) -> u64 {
        match *self {}
    }

    pub(super) fn finish_clock_step(&self, _: ClientId, _: u64) {
        match *self {}
    }

    pub(super) fn leave_clock_steps(&self, _: ClientId) {
        match *self {}
    }

    pub(super) fn remove(&self) -> bool {
        match *self {}
    }

    pub(super) fn reach(&self, _: &Client) -> Reach {
        match *self {}
    }
}

/// Whether a node answers a client.
pub(super) enum Reach {
    Open,
    #[expect(dead_code, reason = "only a node that tests have paused is silent")]
    Silent,
    #[expect(dead_code, reason = "only a node that tests have crashed resets connections")]
    Reset,
}

/// The faults of a connection: a value that cannot exist.
pub(super) enum ConnectionFaults {}

impl ConnectionFaults {
    pub(super) fn is_silent(&self) -> bool {
        match *self {}
    }

    pub(super) fn resets(&self) -> bool {
        match *self {}
    }

    pub(super) fn end_hold(&mut self, _: &Engine, _: &Session, _: &mut Vec<u8>) -> bool {
        match *self {}
    }
}

/// What becomes of a request that is not just executed: a value that cannot exist.
pub(super) enum Detour {}

impl Detour {
    pub(super) fn outcome(self) -> (State, bool, Option<ServerContext>) {
        match self {}
    }
}

pub(super) fn execute(
    (_, membership, _): (&Engine, &Membership, &mut Option<Box<ConnectionFaults>>),
    _: &mut Session,
    _: Request<'_>,
    _: &mut Batch,
    _: &mut Vec<u8>,
) -> Result<Flow, Detour> {
    match *membership {}
}

/// # Errors
/// Never.
pub(super) fn end_wait(
    _: &mut Option<Box<ConnectionFaults>>,
    _: &Engine,
    _: &Session,
    _: (usize, &mut Vec<u8>),
) -> Result<Flow, Detour> {
    Ok(Flow::Next)
}

pub(super) fn disconnected(_: &Arc<redlatch_core::commands::Shared>, _: &Session) {}
