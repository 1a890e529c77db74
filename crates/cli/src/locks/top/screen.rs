//! The terminal of `redlatch top`: keys come in, the state is drawn, the server is asked.
//!
//! Rule    whatever ends it (a key, a signal, an error, a panic), the terminal is as it was before.
//! Rule    keys and signals count while a server does not answer.

use std::io::IsTerminal;
use std::pin::Pin;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyEventKind};
use redlatch_client::{Error, Locks};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use super::sample::{Loss, Sample, Source};
use super::state::{Next, State};
use super::view::draw;
use crate::common::exit::{self, Failure};
use crate::common::{Fault, ServerAddress, signals};

/// Shows the locks of the server until it is ended, and asks for them every `interval`; returns the exit code.
pub(super) fn show(server: ServerAddress, interval: Duration) -> u8 {
    exit::run(async {
        if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
            return Err(Failure::misused(
                "top needs a terminal; without one, use redlatch ls or redlatch watch",
            ));
        }
        let (target, trust) = server.find().map_err(Failure::misused)?;
        // A server that is not there at the start is an error; later it is waited for.
        let (address, locks) = (target.address.clone(), Locks::at(target, trust));
        let source = Source::open(&locks).await?;
        let mut terminal =
            ratatui::try_init().map_err(|error| format!("cannot use the terminal: {error}"))?;
        let mut screen = Screen { state: State::new(&address), source: Some(source), locks };
        let shown = screen.show(&mut terminal, interval).await;
        ratatui::restore();
        Ok(shown.map(|()| 0)?)
    })
}

/// The server, and what is shown of it.
struct Screen {
    state: State,
    /// `None` while the connection is lost, or the server is being asked on it.
    source: Option<Source>,
    locks: Locks,
}

impl Screen {
    async fn show(&mut self, terminal: &mut ratatui::DefaultTerminal, every: Duration) -> Result<(), Fault> {
        let (mut signals, mut events) = (signals()?, events());
        let mut tick = interval(every);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut last, mut is_drawn) = (Instant::now(), false);
        let Self { state, source, locks } = self;
        let mut asking: Option<Asking<'_>> = None;
        loop {
            if !is_drawn {
                let drawn = terminal.draw(|frame| draw(frame, state));
                drawn.map_err(|error| format!("cannot write to the terminal: {error}"))?;
            }
            is_drawn = false;
            tokio::select! {
                _ = tick.tick(), if asking.is_none() => {
                    asking = Some(Box::pin(ask(source.take(), locks, state.longest())));
                    is_drawn = true;
                }
                answer = answer_to(&mut asking) => {
                    asking = None;
                    match answer {
                        Ok((connected, sample)) => {
                            let before = std::mem::replace(&mut last, Instant::now());
                            state.sample(sample, last - before);
                            *source = Some(connected);
                        }
                        Err(error) => state.failure = Some(error.to_string()),
                    }
                }
                event = events.recv() => match event {
                    Some(Event::Key(key)) if key.kind != KeyEventKind::Release => {
                        if state.press(key) == Next::End {
                            return Ok(());
                        }
                    }
                    // The next drawing has the new size.
                    Some(_) => {}
                    None => return Err("the terminal is gone".to_owned()),
                },
                loss = next_loss(source) => match loss {
                    // Many may come at once: the next interval shows them.
                    Ok(loss) => {
                        state.lose(loss);
                        is_drawn = true;
                    }
                    Err(error) => {
                        state.failure = Some(error.to_string());
                        *source = None;
                    }
                },
                _ = signals.leave() => return Ok(()),
            }
        }
    }
}

/// What the server answers, and the connection to it.
type Answer = Result<(Source, Sample), Error>;
type Asking<'a> = Pin<Box<dyn Future<Output = Answer> + 'a>>;

/// Asks the server, after a connection to it has been opened if there is none. Where nodes were missing, all are looked for
/// anew.
async fn ask(source: Option<Source>, locks: &Locks, longest: Vec<(String, Vec<u8>)>) -> Answer {
    let mut source = match source.filter(Source::is_whole) {
        Some(source) => source,
        None => Source::open(locks).await?,
    };
    let sample = source.sample_within(ANSWER_MAX, &longest).await?;
    Ok((source, sample))
}

/// Waits for the answer to the question, if one was asked.
async fn answer_to(asking: &mut Option<Asking<'_>>) -> Answer {
    match asking {
        Some(answer) => answer.await,
        None => std::future::pending().await,
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

/// How long the server may take for all of one interval.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Events that wait to be handled. More wait in the terminal.
const EVENTS: usize = 64;
