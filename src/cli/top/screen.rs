//! The terminal of `redlatch top`: keys come in, the state is drawn, the server is asked.
//!
//! Rule    whatever ends it (a key, a signal, an error, a panic), the terminal is as it was before.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyEventKind};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use super::super::run::{MISUSED, NO_SERVER};
use super::super::{Fault, runtime, warn};
use super::Options;
use super::sample::{Loss, Source};
use super::state::{Next, State};
use super::view::draw;
use crate::client::{Error, Target, Trust};

/// Shows the server until it is ended; returns the exit code.
pub(super) fn run(options: Options) -> u8 {
    let refuse = |code, fault: Fault| {
        warn(&fault);
        code
    };
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return refuse(MISUSED, "top takes a terminal; redlatch ls and redlatch watch do not".to_owned());
    }
    let (target, trust) = match options.place.find() {
        Ok(found) => found,
        Err(fault) => return refuse(MISUSED, fault),
    };
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(fault) => return refuse(FAILED, fault),
    };
    // A server that is not there at the start is an error; later it is waited for.
    let source = match runtime.block_on(Source::open(&target, &trust)) {
        Ok(source) => source,
        Err(error @ Error::Unsupported(_)) => return refuse(MISUSED, error.to_string()),
        Err(error) => return refuse(NO_SERVER, error.to_string()),
    };
    let mut terminal = match ratatui::try_init() {
        Ok(terminal) => terminal,
        Err(error) => return refuse(FAILED, format!("cannot use the terminal: {error}")),
    };
    let mut screen = Screen { state: State::new(&target.address), source: Some(source), target, trust };
    let shown = runtime.block_on(screen.show(&mut terminal, options.interval));
    ratatui::restore();
    runtime.shutdown_background();
    shown.map_or_else(|fault| refuse(FAILED, fault), |()| 0)
}

/// The server, and what is shown of it.
struct Screen {
    state: State,
    /// `None` while the connection is lost.
    source: Option<Source>,
    target: Target,
    trust: Trust,
}

impl Screen {
    async fn show(&mut self, terminal: &mut ratatui::DefaultTerminal, every: Duration) -> Result<(), Fault> {
        let caught = |kind| signal(kind).map_err(|error| format!("cannot catch signals: {error}"));
        let (mut terminate, mut hang_up) = (caught(SignalKind::terminate())?, caught(SignalKind::hangup())?);
        let mut interrupt = caught(SignalKind::interrupt())?;
        let mut events = events();
        let mut tick = interval(every);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut last, mut is_drawn) = (Instant::now(), false);
        loop {
            if !is_drawn {
                let drawn = terminal.draw(|frame| draw(frame, &self.state));
                drawn.map_err(|error| format!("cannot write to the terminal: {error}"))?;
            }
            is_drawn = false;
            tokio::select! {
                _ = tick.tick() => {
                    let now = Instant::now();
                    self.ask(now - last).await;
                    last = now;
                }
                event = events.recv() => match event {
                    Some(Event::Key(key)) if key.kind != KeyEventKind::Release => {
                        if self.state.press(key) == Next::End {
                            return Ok(());
                        }
                    }
                    // The next drawing has the new size.
                    Some(_) => {}
                    None => return Err("the terminal is gone".to_owned()),
                },
                loss = next_loss(&mut self.source) => match loss {
                    // Many may come at once: the next interval shows them.
                    Ok(loss) => {
                        self.state.lose(loss);
                        is_drawn = true;
                    }
                    Err(error) => self.fail(&error),
                },
                _ = terminate.recv() => return Ok(()),
                _ = hang_up.recv() => return Ok(()),
                _ = interrupt.recv() => return Ok(()),
            }
        }
    }

    /// Asks the server, after a connection to it has been opened if there is none.
    async fn ask(&mut self, since_last: Duration) {
        if self.source.is_none() {
            match Source::open(&self.target, &self.trust).await {
                Ok(source) => self.source = Some(source),
                Err(error) => return self.fail(&error),
            }
        }
        let longest = self.state.longest();
        let Some(source) = &mut self.source else { return };
        match source.sample_within(ANSWER_MAX, &longest).await {
            Ok(sample) => self.state.sample(sample, since_last),
            Err(error) => self.fail(&error),
        }
    }

    fn fail(&mut self, error: &Error) {
        self.state.failure = Some(error.to_string());
        self.source = None;
    }
}

async fn next_loss(source: &mut Option<Source>) -> Result<Loss, Error> {
    match source {
        Some(source) => source.next_loss().await,
        None => std::future::pending().await,
    }
}

/// What happens on the terminal, read by a thread of its own that ends with the process.
fn events() -> mpsc::Receiver<Event> {
    let (tell, told) = mpsc::channel(EVENTS);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if tell.blocking_send(event).is_err() {
                break;
            }
        }
    });
    told
}

/// The exit code for a terminal that cannot be used.
const FAILED: u8 = 1;
/// How long the server may take for all of one interval.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Events that wait to be handled. More wait in the terminal.
const EVENTS: usize = 64;
