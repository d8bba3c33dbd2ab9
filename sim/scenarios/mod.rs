//! Fixed schedules, one file each, named for the rule that closes the hole: the counterexamples
//! that a model of the protocol gave, and those that random runs found.

use crate::script::{Played, Script};
use crate::setup::Setup;
use crate::trace::Mode;

pub mod absent_owner_is_marked;
pub mod end_of_session_frees_nothing;
pub mod granted_retract_stays_an_obligation;
pub mod last_version_is_remembered;
pub mod lower_term_is_ignored;
pub mod never_acked_waits_for_grace;
pub mod placed_copy_is_an_owner;
pub mod reconnect_keeps_locations;
pub mod refused_item_waits_for_grace;
pub mod remove_takes_a_version;
pub mod replace_waits_for_old_owners;
pub mod report_hides_owner_erases;
pub mod retire_answer_is_numbered;
pub mod write_is_one_shot;
pub mod write_of_another_term_is_refused;

/// One fixed schedule.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Its name, that of its file.
    pub name: &'static str,
    /// The ground it is played on.
    pub setup: fn() -> Setup,
    /// The schedule.
    pub play: fn(&mut Script) -> Played,
}

impl std::fmt::Debug for Scenario {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

macro_rules! scenarios {
    ($($name:ident),* $(,)?) => {
        /// All of them.
        pub const ALL: &[Scenario] = &[$(Scenario {
            name: stringify!($name),
            setup: $name::setup,
            play: $name::play,
        }),*];

        #[cfg(test)]
        mod tests {
            $(#[test]
            fn $name() {
                if let Err(message) = super::play(&super::find(stringify!($name)).unwrap(), crate::trace::Mode::Tail(200)) {
                    panic!("{message}");
                }
            })*
        }
    };
}

scenarios!(
    remove_takes_a_version,
    absent_owner_is_marked,
    granted_retract_stays_an_obligation,
    placed_copy_is_an_owner,
    write_is_one_shot,
    write_of_another_term_is_refused,
    replace_waits_for_old_owners,
    last_version_is_remembered,
    reconnect_keeps_locations,
    end_of_session_frees_nothing,
    lower_term_is_ignored,
    report_hides_owner_erases,
    retire_answer_is_numbered,
    refused_item_waits_for_grace,
    never_acked_waits_for_grace,
);

/// Finds a scenario by its name.
pub fn find(name: &str) -> Option<Scenario> {
    ALL.iter().find(|s| s.name == name).copied()
}

/// Plays one.
///
/// # Errors
/// What did not go as it must, with the end of the log.
pub fn play(scenario: &Scenario, mode: Mode) -> Result<(), String> {
    let mut script = Script::begin((scenario.setup)(), mode)?;
    let played = (scenario.play)(&mut script);
    played.map_err(|message| {
        let mut out = format!("{}: {message}", scenario.name);
        for line in script.world.trace.into_lines() {
            out.push_str("\n  ");
            out.push_str(&line);
        }
        out
    })
}
