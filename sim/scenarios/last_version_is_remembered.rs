//! H6, second half: the directory must not forget a key's last version with its last replica while
//! an older copy may exist. The old version's owner is away; the new version is acked, then
//! evicted; the owner returns with the old one.

use crate::script::{Played, Script};
use crate::setup::Setup;

pub(super) fn setup() -> Setup {
    Setup {
        keys: 16,
        ..Setup::calm()
    }
}

pub(super) fn play(s: &mut Script) -> Played {
    let v1 = s.put(0, 0)?;
    s.cut_off(0);
    s.run(500)?;
    let v2 = s.replace(0, 1)?;
    for key in 1..12 {
        s.put(key, 1)?;
        if !s.holds(1, v2) {
            break;
        }
    }
    s.until("the new version is evicted", |w| {
        let view = w.nodes[1].core.as_ref().map(|c| c.inspect());
        view.is_some_and(|v| v.replicas.iter().all(|r| r.version != v2))
    })?;
    s.rejoin();
    s.registered()?;
    s.run(2000)?;
    s.misses(1, 0)?;
    if s.holds(0, v1) {
        return Err("the returning owner still serves the replaced version".to_owned());
    }
    Ok(())
}
