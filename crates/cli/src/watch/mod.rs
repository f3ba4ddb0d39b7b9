//! `fencelock watch [PREFIX]`: who holds what, and who waits, drawn again and again.

#[cfg(unix)]
mod layout;
#[cfg(unix)]
mod row;
#[cfg(unix)]
mod screen;

use clap::Args;
use std::time::Duration;

#[derive(Args, Debug)]
pub(crate) struct Watch {
    /// Only locks whose names begin with this.
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
    /// How long to wait between two looks at the service.
    #[arg(long, value_name = "DURATION", value_parser = parse_interval, default_value = "1s")]
    interval: Duration,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = humantime::parse_duration(text).map_err(|e| e.to_string())?;
    if interval >= Duration::from_millis(100) { Ok(interval) } else { Err("100ms at least".to_owned()) }
}

#[cfg(unix)]
pub(crate) use live::watch;

#[cfg(unix)]
mod live {
    use super::Watch;
    use super::layout::{Frame, View};
    use super::screen::{Key, Screen};
    use crate::args::Options;
    use crate::commands::block_on;
    use crate::connect::{Wanted, client};
    use crate::exit::{self, Failure, Outcome};
    use fencelock::LockClient;
    use std::io::{IsTerminal, stdout};
    use std::time::{Duration, Instant};
    use tokio::signal::unix::{SignalKind, signal};

    /// How long one look at the service may take.
    const PATIENCE: Duration = Duration::from_secs(10);

    pub(crate) fn watch(options: &Options, args: &Watch) -> Outcome {
        if !stdout().is_terminal() {
            let message = "`watch` draws on a terminal, and standard output is none; see `list`";
            return Err(Failure::new(exit::USAGE, message));
        }
        block_on(async {
            let client = client(options, Wanted::default()).await?;
            // Asked once before the terminal changes, so that an error stands where it can be read.
            let held = client.list(&args.prefix).await?;
            let mut view = View::new(&args.prefix);
            view.update(Ok(held), Instant::now());
            run(&client, args, view).await
        })
    }

    async fn run(client: &LockClient, args: &Watch, mut view: View) -> Outcome {
        let mut screen = Screen::enter()?;
        let mut resized = signal(SignalKind::window_change())?;
        let (mut interrupted, mut terminated) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let mut hung_up = signal(SignalKind::hangup())?;
        let mut due = tokio::time::interval(args.interval);
        due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut look = Box::pin(next_look(client, args, None));
        loop {
            let (columns, lines) = screen.size();
            screen.draw(&Frame::of(&mut view, columns, lines, Instant::now()))?;
            tokio::select! {
                found = &mut look => {
                    view.update(found, Instant::now());
                    look = Box::pin(next_look(client, args, Some(args.interval)));
                }
                key = screen.key() => match key {
                    Key::Quit => return Ok(exit::OK),
                    Key::Scroll(by) => view.scroll(by),
                    Key::Page(pages) => view.page(pages),
                    Key::Top => view.scroll(isize::MIN / 2),
                },
                _ = due.tick() => {}
                _ = resized.recv() => {}
                _ = interrupted.recv() => return Ok(exit::OK),
                _ = terminated.recv() => return Ok(exit::OK),
                _ = hung_up.recv() => return Ok(exit::OK),
            }
        }
    }

    async fn next_look(client: &LockClient, args: &Watch, after: Option<Duration>) -> super::layout::Found {
        tokio::time::sleep(after.unwrap_or_default()).await;
        match tokio::time::timeout(PATIENCE, client.list(&args.prefix)).await {
            Ok(Ok(held)) => Ok(held),
            Ok(Err(e)) => Err(e.to_string()),
            Err(_) => Err(format!("no answer in {PATIENCE:?}")),
        }
    }
}
