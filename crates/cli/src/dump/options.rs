//! Options of a keyspace as `NAME=VALUE`.

use lithedb::{Codec, KeyspaceOptions, Structure};

use crate::notation::{exact_duration_text, parse_duration, parse_escaped, write_escaped};

const BY_BUDGET: &str = "budget";
const OFF: &str = "off";

/// The options, every one of them, with their values; one that is not set has no field.
pub fn fields(options: &KeyspaceOptions) -> Vec<String> {
    let memtable = options.memtable_size.map_or_else(|| BY_BUDGET.to_owned(), |n| n.to_string());
    let separation = options.value_separation.map_or_else(|| OFF.to_owned(), |n| n.to_string());
    let mut fields = vec![
        format!("structure={}", structure_name(options.structure)),
        format!("codec={}", codec_name(options.codec)),
        format!("interval_size={}", options.interval_size),
        format!("segment_size={}", options.segment_size),
        format!("consolidation_pace={}", options.consolidation_pace),
        format!("delta_fan_in={}", options.delta_fan_in),
        format!("memtable_size={memtable}"),
        format!("value_separation={separation}"),
    ];
    fields.extend(
        options.merge_operator.iter().map(|name| format!("merge_operator={}", escaped(name))),
    );
    fields.extend(options.ttl.map(|ttl| format!("ttl={}", exact_duration_text(ttl))));
    fields
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
        seen.push(name);
        set(&mut options, name, value)?;
    }
    options.validate().map_err(|error| error.to_string())?;
    Ok(options)
}

fn set(options: &mut KeyspaceOptions, name: &str, value: &str) -> Result<(), String> {
    let is_known = match name {
        "structure" => value == structure_name(Structure::Flex),
        "codec" => {
            let found = [Codec::None, Codec::Lz4].into_iter().find(|c| codec_name(*c) == value);
            assign(&mut options.codec, found)
        }
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
        _ => return Err(format!("there is no option {name:?}")),
    };
    if is_known { Ok(()) } else { Err(format!("the option {name:?} cannot be {value:?}")) }
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

fn structure_name(structure: Structure) -> &'static str {
    match structure {
        Structure::Flex => "flex",
        _ => "another", // The library may learn one before this program does.
    }
}

fn codec_name(codec: Codec) -> &'static str {
    match codec {
        Codec::None => "none",
        Codec::Lz4 => "lz4",
        _ => "another",
    }
}
