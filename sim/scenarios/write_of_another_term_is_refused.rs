//! H5, second half: a put in flight over a restart of the master. A node refuses writes whose
//! version is of another term than its session's, so that the put reserves again.

use crate::host::ask::Ask;
use crate::script::{Played, Script, put_ask, write_to};
use crate::setup::Setup;
use snowskin_types::call::PutMode;

pub(super) fn setup() -> Setup {
    Setup::calm()
}

pub(super) fn play(s: &mut Script) -> Played {
    let write = s.hold(write_to(0));
    s.begin_call(0, put_ask(0, 0, PutMode::IfAbsent));
    s.caught(write, "the write is sent")?;
    s.restart_master()?;
    s.registered()?;
    s.begin_call(
        1,
        Ask::Remove {
            key: 0,
            force: true,
        },
    );
    s.removed(1)?;
    s.release(write);
    let version = s.written(0)?;
    if version.term() != s.world.master.durable.term {
        return Err(format!("version {version} of a former term was taken"));
    }
    s.reads(1, 0, version)
}
