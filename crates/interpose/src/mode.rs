//! The command's settings, from the program's environment: what is noted, whether memory is served, what is delayed.

use std::path::PathBuf;
use std::sync::OnceLock;

use millpond_core::check::Suppressions;

/// The use of operations.
#[derive(Debug)]
pub(crate) enum Noting {
    Off,
    Record(PathBuf),
    Check {
        races: bool,
        leaks: bool,
        stacks: bool,
        /// The findings that the user does not want to see.
        suppressions: Suppressions,
    },
}

/// The source of stream-ordered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Serving {
    /// The driver, as without this library.
    Off,
    /// The driver, and its cost is reported.
    Driver,
    /// Millpond's pool.
    Millpond,
}

/// The limit of device memory.
#[derive(Debug)]
pub(crate) struct Limit {
    /// The amounts, in the command's form.
    pub(crate) amounts: String,
    /// The accounting file that the program's processes share.
    pub(crate) account: PathBuf,
}

/// The delays of the program's streams.
#[derive(Debug)]
pub(crate) struct Shaking {
    /// The command's list of delays.
    pub(crate) list: PathBuf,
    /// `true` if operations of captures are delayed, too.
    pub(crate) graphs: bool,
}

#[derive(Debug)]
struct Mode {
    noting: Noting,
    serving: Serving,
    reports: bool,
    limit: Option<Limit>,
    shaking: Option<Shaking>,
}

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0")
}

fn mode() -> &'static Mode {
    static MODE: OnceLock<Mode> = OnceLock::new();
    MODE.get_or_init(|| {
        let output = std::env::var_os("MILLPOND_INTERPOSE_OUTPUT");
        let noting = match (std::env::var("MILLPOND_INTERPOSE").as_deref(), output) {
            (Ok("record"), Some(path)) => Noting::Record(path.into()),
            (Ok("check"), _) => {
                // The command has read the file. If it is gone now, so is the command.
                let file = std::env::var_os("MILLPOND_INTERPOSE_SUPPRESSIONS");
                let text = file.and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
                Noting::Check {
                    races: is_set("MILLPOND_INTERPOSE_RACES"),
                    leaks: is_set("MILLPOND_INTERPOSE_LEAKS"),
                    stacks: is_set("MILLPOND_INTERPOSE_STACKS"),
                    suppressions: Suppressions::parse(&text).unwrap_or_default(),
                }
            }
            _ => Noting::Off,
        };
        let serving = match std::env::var("MILLPOND_INTERPOSE_SERVE").as_deref() {
            Ok("millpond") => Serving::Millpond,
            Ok("driver") => Serving::Driver,
            _ => Serving::Off,
        };
        let account = std::env::var_os("MILLPOND_INTERPOSE_ACCOUNT");
        let limit = match (std::env::var("MILLPOND_INTERPOSE_LIMIT"), account) {
            (Ok(amounts), Some(account)) if serving != Serving::Off => Some(Limit { amounts, account: account.into() }),
            _ => None,
        };
        let list = std::env::var_os("MILLPOND_INTERPOSE_SHAKE").filter(|list| !list.is_empty());
        let graphs = is_set("MILLPOND_INTERPOSE_GRAPHS");
        // Millpond's own work on the program's streams would count as the program's.
        let list = list.filter(|_| serving == Serving::Off);
        let shaking = list.map(|list| Shaking { list: list.into(), graphs });
        Mode { noting, serving, reports: is_set("MILLPOND_INTERPOSE_FIGURES"), limit, shaking }
    })
}

/// Returns what is noted.
#[inline]
pub(crate) fn noting() -> &'static Noting {
    &mode().noting
}

/// Returns the first number of pools, graphs, instances and threads. Tests start near the last number.
pub(crate) fn first_number() -> u32 {
    match cfg!(debug_assertions) {
        true => std::env::var("MILLPOND_INTERPOSE_FIRST_NUMBER").ok().and_then(|it| it.parse().ok()).unwrap_or(0),
        false => 0,
    }
}

/// Returns the source of stream-ordered memory.
#[inline]
pub(crate) fn serving() -> Serving {
    mode().serving
}

/// Returns `true` if the command wants the figures of served memory, with times.
#[inline]
pub(crate) fn reports() -> bool {
    mode().reports
}

/// Returns the limit of device memory, if there is one.
#[inline]
pub(crate) fn limit() -> Option<&'static Limit> {
    mode().limit.as_ref()
}

/// Returns the delays of the program's streams, if there are any.
#[inline]
pub(crate) fn shaking() -> Option<&'static Shaking> {
    mode().shaking.as_ref()
}

/// Returns `true` if operations are noted.
pub(crate) fn is_noting() -> bool {
    !matches!(noting(), Noting::Off)
}

/// Returns `true` if calls are passed on as if this library were not there.
#[inline]
pub(crate) fn is_off() -> bool {
    let mode = mode();
    matches!(mode.noting, Noting::Off) && mode.serving == Serving::Off && mode.shaking.is_none()
}
