//! Options of keyspaces, as JSON has them: by the names that the engine has for them.

use std::time::Duration;

use lithedb::{Codec, Compaction, Conversion, KeyspaceOptions, Leveled, Structure, Tiered};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::failure::{Code, Failure};

/// Options that are said; others are as they are, or as the structure has them.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OptionsBody {
    pub name: Option<String>,
    pub structure: Option<StructureName>,
    /// Also if versions are lost by it.
    pub confirm: Option<Yes>,
    codec: Option<String>,
    memtable_size: Option<u64>,
    /// Bytes, or null for never.
    #[serde(default, deserialize_with = "said")]
    value_separation: Option<Option<u32>>,
    merge_operator: Option<String>,
    ttl_seconds: Option<f64>,
    keep_for_seconds: Option<f64>,
    keep_versions: Option<u32>,
    interval_size: Option<u32>,
    segment_size: Option<u32>,
    consolidation_pace: Option<f32>,
    delta_fan_in: Option<u8>,
    compaction: Option<CompactionBody>,
    table_size: Option<u32>,
    block_size: Option<u32>,
    restart_interval: Option<u16>,
    filter_bits: Option<u8>,
    filter_prefix_len: Option<u8>,
    dictionary_size: Option<u32>,
    pin_indexes: Option<bool>,
}

/// A member that is there, be it null.
fn said<'j, D, T>(deserializer: D) -> Result<Option<Option<T>>, D::Error>
where
    D: serde::Deserializer<'j>,
    T: Deserialize<'j>,
{
    Option::<T>::deserialize(deserializer).map(Some)
}

/// That something is meant.
#[derive(Clone, Copy, Debug, Deserialize)]
pub enum Yes {
    #[serde(rename = "yes")]
    Yes,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StructureName {
    Flex,
    Lsm,
    History,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CompactionBody {
    style: Style,
    level0_trigger: Option<u8>,
    level_ratio: Option<f32>,
    bucket_low: Option<f32>,
    bucket_high: Option<f32>,
    threshold: Option<u8>,
    run_count_max: Option<u8>,
    garbage_max: Option<f32>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Style {
    Leveled,
    Tiered,
}

fn invalid(what: impl Into<String>) -> Failure {
    Failure::new(Code::InvalidArgument, what)
}

fn seconds(name: &str, seconds: f64) -> Result<Duration, Failure> {
    let wrong = || invalid(format!("{name}: a number of seconds"));
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

impl StructureName {
    fn defaults(self) -> KeyspaceOptions {
        match self {
            StructureName::Flex => KeyspaceOptions::flex(),
            StructureName::Lsm => KeyspaceOptions::lsm(),
            StructureName::History => KeyspaceOptions::history(),
        }
    }
}

impl OptionsBody {
    /// Those of a keyspace that is made.
    pub fn of_new(&self) -> Result<KeyspaceOptions, Failure> {
        if self.confirm.is_some() {
            return Err(invalid("confirm: nothing is lost when a keyspace is made"));
        }
        self.add_to(self.structure.unwrap_or(StructureName::Flex).defaults())
    }

    /// Those that a keyspace is converted to, which has these now.
    pub fn conversion(&self, now: &KeyspaceOptions) -> Result<Conversion, Failure> {
        let structure = self.structure.ok_or_else(|| invalid("structure is missing"))?;
        let options = self.add_to(with_what_stays(now, structure))?;
        let is_lost = now.structure == Structure::History && options.structure != now.structure;
        if is_lost && self.confirm.is_none() {
            let what = "all versions but the present ones would be lost: say \"confirm\":\"yes\"";
            return Err(Failure::new(Code::ConfirmationNeeded, what));
        }
        let conversion = Conversion::to(options);
        Ok(if is_lost { conversion.losing_versions() } else { conversion })
    }

    fn add_to(&self, mut options: KeyspaceOptions) -> Result<KeyspaceOptions, Failure> {
        if let Some(codec) = &self.codec {
            let codec: Codec = codec.parse().map_err(|error| invalid(format!("{error}")))?;
            options = options.codec(codec);
        }
        if let Some(bytes) = self.memtable_size {
            options = options.memtable_size(bytes);
        }
        if let Some(bytes) = self.value_separation {
            options = options.value_separation(bytes);
        }
        if let Some(name) = &self.merge_operator {
            options = options.merge_operator(name);
        }
        if let Some(ttl) = self.ttl_seconds {
            options = options.ttl(seconds("ttl_seconds", ttl)?);
        }
        if let Some(time) = self.keep_for_seconds {
            options = options.keep_for(seconds("keep_for_seconds", time)?);
        }
        if let Some(count) = self.keep_versions {
            options = options.keep_versions(count);
        }
        let options = self.add_lsm(self.add_flex(options));
        options.validate().map_err(|error| invalid(error.to_string()))?;
        Ok(options)
    }

    fn add_flex(&self, mut options: KeyspaceOptions) -> KeyspaceOptions {
        if let Some(bytes) = self.interval_size {
            options = options.interval_size(bytes);
        }
        if let Some(bytes) = self.segment_size {
            options = options.segment_size(bytes);
        }
        if let Some(pace) = self.consolidation_pace {
            options = options.consolidation_pace(pace);
        }
        if let Some(count) = self.delta_fan_in {
            options = options.delta_fan_in(count);
        }
        options
    }

    fn add_lsm(&self, mut options: KeyspaceOptions) -> KeyspaceOptions {
        if let Some(compaction) = &self.compaction {
            options = options.compaction(compaction.meant());
        }
        if let Some(bytes) = self.table_size {
            options = options.table_size(bytes);
        }
        if let Some(bytes) = self.block_size {
            options = options.block_size(bytes);
        }
        if let Some(keys) = self.restart_interval {
            options = options.restart_interval(keys);
        }
        if let Some(bits) = self.filter_bits {
            options = options.filter_bits(bits);
        }
        if let Some(bytes) = self.filter_prefix_len {
            options = options.filter_prefix_len(bytes);
        }
        if let Some(bytes) = self.dictionary_size {
            options = options.dictionary_size(bytes);
        }
        if let Some(pin) = self.pin_indexes {
            options = options.pin_indexes(pin);
        }
        options
    }
}

/// What every structure has stays; and all of it, if the structure does.
fn with_what_stays(now: &KeyspaceOptions, structure: StructureName) -> KeyspaceOptions {
    let defaults = structure.defaults();
    if now.structure == defaults.structure {
        return now.clone();
    }
    let mut options = defaults.codec(now.codec).value_separation(now.value_separation);
    if let Some(bytes) = now.memtable_size {
        options = options.memtable_size(bytes);
    }
    if let Some(name) = &now.merge_operator {
        options = options.merge_operator(name);
    }
    if let Some(ttl) = now.ttl {
        options = options.ttl(ttl);
    }
    options
}

impl CompactionBody {
    fn meant(&self) -> Compaction {
        match self.style {
            Style::Leveled => {
                let mut leveled = Leveled::new();
                leveled.level0_trigger = self.level0_trigger.unwrap_or(leveled.level0_trigger);
                leveled.level_ratio = self.level_ratio.unwrap_or(leveled.level_ratio);
                Compaction::Leveled(leveled)
            }
            Style::Tiered => {
                let mut tiered = Tiered::new();
                tiered.bucket_low = self.bucket_low.unwrap_or(tiered.bucket_low);
                tiered.bucket_high = self.bucket_high.unwrap_or(tiered.bucket_high);
                tiered.threshold = self.threshold.unwrap_or(tiered.threshold);
                tiered.run_count_max = self.run_count_max.unwrap_or(tiered.run_count_max);
                tiered.garbage_max = self.garbage_max.unwrap_or(tiered.garbage_max);
                Compaction::Tiered(tiered)
            }
        }
    }
}

/// Options as answers have them: those that the structure has.
pub fn options_json(options: &KeyspaceOptions) -> Value {
    let mut object = Map::new();
    let mut add = |name: &str, value: Value| object.insert(name.to_owned(), value);
    add("codec", options.codec.to_string().into());
    add("memtable_size", json!(options.memtable_size));
    add("value_separation", json!(options.value_separation));
    add("merge_operator", json!(options.merge_operator));
    add("ttl_seconds", json!(options.ttl.map(|ttl| ttl.as_secs_f64())));
    if options.structure == Structure::History {
        add("keep_for_seconds", json!(options.keep_for.map(|time| time.as_secs_f64())));
        add("keep_versions", json!(options.keep_versions));
    }
    if options.structure == Structure::Lsm {
        let lsm = &options.lsm;
        add("compaction", compaction_json(&lsm.compaction));
        add("table_size", lsm.table_size.into());
        add("block_size", lsm.block_size.into());
        add("restart_interval", lsm.restart_interval.into());
        add("filter_bits", lsm.filter_bits.into());
        add("filter_prefix_len", lsm.filter_prefix_len.into());
        add("dictionary_size", lsm.dictionary_size.into());
        add("pin_indexes", lsm.pin_indexes.into());
    } else {
        add("interval_size", options.interval_size.into());
        add("segment_size", options.segment_size.into());
        add("consolidation_pace", rounded(options.consolidation_pace));
        add("delta_fan_in", options.delta_fan_in.into());
    }
    Value::Object(object)
}

/// Three places: what the engine keeps of such numbers.
fn rounded(number: f32) -> Value {
    json!((f64::from(number) * 1000.0).round() / 1000.0)
}

fn compaction_json(compaction: &Compaction) -> Value {
    match compaction {
        Compaction::Leveled(leveled) => json!({
            "style": "leveled",
            "level0_trigger": leveled.level0_trigger,
            "level_ratio": rounded(leveled.level_ratio),
        }),
        Compaction::Tiered(tiered) => json!({
            "style": "tiered",
            "bucket_low": rounded(tiered.bucket_low),
            "bucket_high": rounded(tiered.bucket_high),
            "threshold": tiered.threshold,
            "run_count_max": tiered.run_count_max,
            "garbage_max": rounded(tiered.garbage_max),
        }),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_can_be_said() {
        for defaults in
            [KeyspaceOptions::flex(), KeyspaceOptions::lsm(), KeyspaceOptions::history()]
        {
            let mut shown = options_json(&defaults);
            let members = shown.as_object_mut().unwrap();
            members.retain(|name, value| !value.is_null() || name == "value_separation");
            members.insert("structure".to_owned(), defaults.structure.name().into());
            let read: OptionsBody = serde_json::from_value(shown).unwrap();
            assert_eq!(read.of_new().unwrap(), defaults);
        }
    }

    #[test]
    fn versions_are_lost_by_who_says_so() {
        let mut body = OptionsBody { structure: Some(StructureName::Flex), ..Default::default() };
        let history = KeyspaceOptions::history();
        let refused = body.conversion(&history).unwrap_err();
        assert_eq!(refused.code(), Code::ConfirmationNeeded);
        body.confirm = Some(Yes::Yes);
        assert!(body.conversion(&history).unwrap().loses_versions);
        assert!(!body.conversion(&KeyspaceOptions::lsm()).unwrap().loses_versions);
    }
}
