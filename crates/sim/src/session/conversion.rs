//! Converting a keyspace while other things go on.

use std::ops::ControlFlow;

use lithedb::{Conversion, Error, KeyspaceOptions, Structure};

use super::{Session, Trouble, absurd};
use crate::ops::ConversionOp;

impl Session {
    /// Converts a keyspace. Behind each slice one of the other operations is done; when they are
    /// used up, it goes on to its end or is cancelled.
    pub(super) fn convert(&mut self, op: &ConversionOp) -> Result<(), Trouble> {
        if self.is_converting {
            return Ok(()); // One at a time.
        }
        let Some(keyspace) = self.keyspace(op.slot) else { return Ok(()) };
        let Some(now) = self.options_of(keyspace.id()) else { return Ok(()) };
        let target = self.conversion_target(op.options, &now);
        let loses_versions =
            now.structure == Structure::History && target.structure != Structure::History;
        if loses_versions {
            match keyspace.convert(target.clone()) {
                Err(Error::InvalidArgument { .. }) => {}
                Err(error) => return Err(error.into()),
                Ok(report) => {
                    return Err(absurd(format!("versions were lost unasked: {report:?}")));
                }
            }
        }
        let mut conversion = Conversion::to(target.clone());
        conversion.loses_versions = loses_versions;
        let (mut beside, mut slices, mut failed) = (op.beside.iter(), 0, None);
        self.is_converting = true;
        let converted = keyspace.convert_while(conversion, |so_far| {
            slices = so_far.slices;
            match beside.next() {
                // What reads or opens anew is done nowhere in here.
                Some(beside) => failed = self.run(beside).err(),
                None if op.is_cancelled => return ControlFlow::Break(()),
                None => {}
            }
            if failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        self.is_converting = false;
        if let Some(trouble) = failed {
            return Err(trouble);
        }
        let report = match converted {
            Err(Error::KeyspaceNotFound { .. }) if self.options_of(keyspace.id()).is_none() => {
                return Ok(());
            }
            other => other?,
        };
        let expected = if report.is_cancelled { &now } else { &target };
        let found = self.options_of(keyspace.id());
        let is_counted = report.slices == slices + u64::from(!report.is_cancelled);
        if found.as_ref() != Some(expected) || !is_counted {
            return Err(absurd(format!("{slices} slices of a conversion: {report:?}, {found:?}")));
        }
        Ok(())
    }

    fn options_of(&self, id: u32) -> Option<KeyspaceOptions> {
        let infos = self.db.keyspaces();
        infos.into_iter().find(|info| info.id == id).map(|info| info.options)
    }

    /// Options of some number that a keyspace with these can be converted to.
    fn conversion_target(&self, number: u8, now: &KeyspaceOptions) -> KeyspaceOptions {
        let mut target = self.setup.keyspace_options(usize::from(number / 4));
        let structure = match number % 4 {
            0 => Structure::Flex,
            1 => Structure::Lsm,
            2 => Structure::History,
            _ => target.structure,
        };
        if target.structure != structure {
            let drawn = match structure {
                Structure::Lsm => KeyspaceOptions::lsm().table_size(4096).block_size(512),
                Structure::History => KeyspaceOptions::history(),
                _ => KeyspaceOptions::flex().interval_size(512),
            };
            target = drawn.value_separation(target.value_separation);
        }
        target.merge_operator.clone_from(&now.merge_operator);
        if now.merge_operator.is_some() {
            target.ttl = None;
        }
        if now.structure == Structure::History && target.structure == Structure::History {
            (target.keep_for, target.keep_versions) = (now.keep_for, now.keep_versions);
        }
        target
    }
}
