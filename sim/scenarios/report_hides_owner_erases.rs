//! H10: a reader falsely reports a replica. The directory hides the claim but keeps its owner: a
//! remove still waits for that owner, and without one the owner's word brings the claim back.

use crate::host::ask::Ask;
use crate::script::{Played, Script, report_ask, words_to};
use crate::setup::Setup;
use snowskin_types::call::Fault;

pub(super) fn setup() -> Setup {
    Setup::calm()
}

pub(super) fn play(s: &mut Script) -> Played {
    let v1 = s.put(0, 0)?;
    s.reads(1, 0, v1)?;
    let words = s.hold(words_to(0));
    s.begin_call(1, report_ask(0, Fault::Bad));
    s.caught(words, "the owner is asked")?;
    // Hidden: nobody is told of it.
    s.misses(0, 0)?;
    s.begin_call(
        0,
        Ask::Remove {
            key: 0,
            force: true,
        },
    );
    s.run(2000)?;
    s.still_waits(0, "the hidden claim's owner has not retired it")?;
    s.take(words);
    s.restart_master()?;
    s.registered()?;
    s.run(1500)?;
    // The remove was not answered, so that the object may be there: its owner says so.
    s.reads(0, 0, v1)?;
    s.reads(1, 0, v1)?;
    for fault in [Fault::Gone, Fault::Bad] {
        s.begin_call(1, report_ask(0, fault));
        s.outcome(1)?;
        s.run(500)?;
        s.reads(1, 0, v1)?;
    }
    Ok(())
}
