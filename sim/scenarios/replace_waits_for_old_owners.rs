//! H6: a replace that is answered before the old version's owner has retired it. If the master
//! restarts and that owner registers first, `locate` would name the old version again.

use crate::script::{Played, Script, put_ask, words_to};
use crate::setup::Setup;
use snowskin_types::call::PutMode;

pub(super) fn setup() -> Setup {
    Setup::calm()
}

pub(super) fn play(s: &mut Script) -> Played {
    let v1 = s.put(0, 0)?;
    let words = s.hold(words_to(0));
    s.begin_call(0, put_ask(0, 1, PutMode::Replace));
    s.caught(words, "the old owner is told to retire")?;
    s.run(2000)?;
    s.still_waits(0, "the old version's owner has not retired it")?;
    s.release(words);
    let v2 = s.written(0)?;
    if v2 <= v1 || s.holds(0, v1) {
        return Err("the replace was answered while the old version is served".to_owned());
    }
    s.restart_master()?;
    s.registered()?;
    s.reads(1, 0, v2)
}
