//! Options of a keyspace as `NAME=VALUE`.

use lithedb::{Codec, Compaction, KeyspaceOptions, Leveled, LsmOptions, Structure, Tiered};

use crate::notation::{exact_duration_text, parse_duration, parse_escaped, write_escaped};

const BY_BUDGET: &str = "budget";
const OFF: &str = "off";
/// What the name of an option for one level begins with; the level follows.
const LEVEL_CODEC: &str = "codec_";
const LEVELED: &str = "leveled";
const TIERED: &str = "tiered";

/// The options, every one of them that the structure has, with their values; one that is not set
/// has no field.
pub fn fields(options: &KeyspaceOptions) -> Vec<String> {
    let memtable = options.memtable_size.map_or_else(|| BY_BUDGET.to_owned(), |n| n.to_string());
    let separation = options.value_separation.map_or_else(|| OFF.to_owned(), |n| n.to_string());
    let mut fields =
        vec![format!("structure={}", options.structure.name()), format!("codec={}", options.codec)];
    match options.structure {
        Structure::Lsm => {
            let named = lsm_options(&options.lsm);
            fields.extend(named.into_iter().map(|(name, value)| format!("{name}={value}")));
        }
        _ => fields.extend([
            format!("interval_size={}", options.interval_size),
            format!("segment_size={}", options.segment_size),
            format!("consolidation_pace={}", options.consolidation_pace),
            format!("delta_fan_in={}", options.delta_fan_in),
        ]),
    }
    fields.extend([format!("memtable_size={memtable}"), format!("value_separation={separation}")]);
    fields.extend(
        options.merge_operator.iter().map(|name| format!("merge_operator={}", escaped(name))),
    );
    fields.extend(options.ttl.map(|ttl| format!("ttl={}", exact_duration_text(ttl))));
    fields.extend(options.keep_for.map(|kept| format!("keep_for={}", exact_duration_text(kept))));
    fields.extend(options.keep_versions.map(|count| format!("keep_versions={count}")));
    fields
}

/// Names and values of the options that only [`Structure::Lsm`] has.
pub fn lsm_options(lsm: &LsmOptions) -> Vec<(String, String)> {
    let mut options: Vec<(String, String)> = Vec::new();
    let mut put = |name: &str, value: String| options.push((name.to_owned(), value));
    match lsm.compaction {
        Compaction::Leveled(leveled) => {
            put("compaction", LEVELED.to_owned());
            put("level0_trigger", leveled.level0_trigger.to_string());
            put("level_ratio", leveled.level_ratio.to_string());
        }
        Compaction::Tiered(tiered) => {
            put("compaction", TIERED.to_owned());
            put("bucket_low", tiered.bucket_low.to_string());
            put("bucket_high", tiered.bucket_high.to_string());
            put("threshold", tiered.threshold.to_string());
            put("run_count_max", tiered.run_count_max.to_string());
            put("garbage_max", tiered.garbage_max.to_string());
        }
        // The library may learn one before this program does.
        _ => put("compaction", "another".to_owned()),
    }
    put("table_size", lsm.table_size.to_string());
    put("block_size", lsm.block_size.to_string());
    put("restart_interval", lsm.restart_interval.to_string());
    put("filter_bits", lsm.filter_bits.to_string());
    put("filter_prefix_len", lsm.filter_prefix_len.to_string());
    put("pin_indexes", lsm.pin_indexes.to_string());
    if lsm.dictionary_size > 0 {
        put("dictionary_size", lsm.dictionary_size.to_string());
    }
    for (level, codec) in lsm.level_codecs.iter().enumerate() {
        if let Some(codec) = codec {
            put(&format!("{LEVEL_CODEC}{level}"), codec.to_string());
        }
    }
    options
}

/// The options that these fields say; the defaults for those that they do not name.
pub fn parse<'a>(fields: impl Iterator<Item = &'a str>) -> Result<KeyspaceOptions, String> {
    let mut options = KeyspaceOptions::flex();
    let mut seen: Vec<&str> = Vec::new();
    for field in fields {
        let (name, value) =
            field.split_once('=').ok_or_else(|| format!("no option: {field:?} has no `=`"))?;
        if seen.contains(&name) {
            return Err(format!("the option {name:?} twice"));
        }
        if name == "structure" && !seen.is_empty() {
            return Err("the structure stands in front of all other options".to_owned());
        }
        seen.push(name);
        set(&mut options, name, value)?;
    }
    options.validate().map_err(|error| error.to_string())?;
    Ok(options)
}

fn set(options: &mut KeyspaceOptions, name: &str, value: &str) -> Result<(), String> {
    let is_known = match name {
        "structure" => assign(options, structure_of(value)),
        "codec" => assign(&mut options.codec, value.parse().ok()),
        "interval_size" => assign(&mut options.interval_size, value.parse().ok()),
        "segment_size" => assign(&mut options.segment_size, value.parse().ok()),
        "consolidation_pace" => assign(&mut options.consolidation_pace, value.parse().ok()),
        "delta_fan_in" => assign(&mut options.delta_fan_in, value.parse().ok()),
        "memtable_size" if value == BY_BUDGET => assign(&mut options.memtable_size, Some(None)),
        "memtable_size" => assign(&mut options.memtable_size, value.parse().ok().map(Some)),
        "value_separation" if value == OFF => assign(&mut options.value_separation, Some(None)),
        "value_separation" => assign(&mut options.value_separation, value.parse().ok().map(Some)),
        "merge_operator" => assign(&mut options.merge_operator, unescaped(value).map(Some)),
        "ttl" => assign(&mut options.ttl, parse_duration(value).ok().map(Some)),
        "keep_for" => assign(&mut options.keep_for, parse_duration(value).ok().map(Some)),
        "keep_versions" => assign(&mut options.keep_versions, value.parse().ok().map(Some)),
        _ => match set_lsm(&mut options.lsm, name, value) {
            Some(is_known) => is_known,
            None => return Err(format!("there is no option {name:?}")),
        },
    };
    if is_known { Ok(()) } else { Err(format!("the option {name:?} cannot be {value:?}")) }
}

/// The defaults of a structure.
fn structure_of(name: &str) -> Option<KeyspaceOptions> {
    [KeyspaceOptions::flex(), KeyspaceOptions::lsm(), KeyspaceOptions::history()]
        .into_iter()
        .find(|options| options.structure.name() == name)
}

/// Whether the option may have this value; `None` when there is no such option.
fn set_lsm(lsm: &mut LsmOptions, name: &str, value: &str) -> Option<bool> {
    let is_known = match (name, &mut lsm.compaction) {
        ("compaction", compaction) => {
            let styles = [
                (LEVELED, Compaction::Leveled(Leveled::new())),
                (TIERED, Compaction::Tiered(Tiered::new())),
            ];
            let found = styles.into_iter().find(|(name, _)| *name == value);
            assign(compaction, found.map(|(_, style)| style))
        }
        ("level0_trigger", Compaction::Leveled(leveled)) => {
            assign(&mut leveled.level0_trigger, value.parse().ok())
        }
        ("level_ratio", Compaction::Leveled(leveled)) => {
            assign(&mut leveled.level_ratio, value.parse().ok())
        }
        ("bucket_low", Compaction::Tiered(tiered)) => {
            assign(&mut tiered.bucket_low, value.parse().ok())
        }
        ("bucket_high", Compaction::Tiered(tiered)) => {
            assign(&mut tiered.bucket_high, value.parse().ok())
        }
        ("threshold", Compaction::Tiered(tiered)) => {
            assign(&mut tiered.threshold, value.parse().ok())
        }
        ("run_count_max", Compaction::Tiered(tiered)) => {
            assign(&mut tiered.run_count_max, value.parse().ok())
        }
        ("garbage_max", Compaction::Tiered(tiered)) => {
            assign(&mut tiered.garbage_max, value.parse().ok())
        }
        ("table_size", _) => assign(&mut lsm.table_size, value.parse().ok()),
        ("block_size", _) => assign(&mut lsm.block_size, value.parse().ok()),
        ("restart_interval", _) => assign(&mut lsm.restart_interval, value.parse().ok()),
        ("filter_bits", _) => assign(&mut lsm.filter_bits, value.parse().ok()),
        ("filter_prefix_len", _) => assign(&mut lsm.filter_prefix_len, value.parse().ok()),
        ("dictionary_size", _) => assign(&mut lsm.dictionary_size, value.parse().ok()),
        ("pin_indexes", _) => assign(&mut lsm.pin_indexes, value.parse().ok()),
        _ => {
            let level = name.strip_prefix(LEVEL_CODEC)?;
            let mut places = lsm.level_codecs.iter_mut().enumerate();
            let (_, place) = places.find(|(index, _)| index.to_string() == level)?;
            assign(place, value.parse::<Codec>().ok().map(Some))
        }
    };
    Some(is_known)
}

/// A name that somebody chose, as it stands between tabs.
fn escaped(name: &str) -> String {
    let mut text = Vec::new();
    write_escaped(&mut text, name.as_bytes()).expect("a vector takes any bytes");
    String::from_utf8(text).expect("escaped text is text")
}

fn unescaped(text: &str) -> Option<String> {
    String::from_utf8(parse_escaped(text.as_bytes()).ok()?).ok()
}

fn assign<T>(place: &mut T, value: Option<T>) -> bool {
    let is_there = value.is_some();
    if let Some(value) = value {
        *place = value;
    }
    is_there
}
