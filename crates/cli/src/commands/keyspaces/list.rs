//! The list of keyspaces, with their options.

use std::io::Write;

use lithedb::{KeyspaceInfo, KeyspaceOptions, Structure};
use serde_json::{Map, Value, json};

use crate::dump::lsm_options;
use crate::failure::{Failure, Outcome};
use crate::notation::{bytes_text, exact_duration_text, shown};
use crate::output::{Columns, ListFormat, Row, RowFormat, RowWriter, Surface, Table, json_line};

/// Writes what there is.
pub fn write_list(
    out: &mut impl Write,
    keyspaces: &[KeyspaceInfo],
    format: ListFormat,
    surface: Surface,
) -> Outcome {
    match format {
        ListFormat::Table => write!(out, "{}", list_table(keyspaces))?,
        ListFormat::Json => {
            let list: Vec<Value> = keyspaces.iter().map(info_json).collect();
            writeln!(out, "{}", json_line(&Value::from(list)))?;
        }
        ListFormat::Jsonl => {
            for info in keyspaces {
                writeln!(out, "{}", json_line(&info_json(info)))?;
            }
        }
        ListFormat::Csv => write_csv(out, keyspaces, surface)?,
        ListFormat::Raw => {
            let names = Columns::default();
            let mut rows = RowWriter::new(&mut *out, RowFormat::Raw, names, surface);
            for info in keyspaces {
                let key = info.name.as_bytes();
                rows.write(Row { key, value: None, stamp: None, expiry: None })?;
            }
            rows.finish()?;
        }
    }
    Ok(out.flush()?)
}

/// Titles of what only some structures have: in other keyspaces the cell is a dash.
const FLEX_TITLES: [&str; 4] = [">interval", ">segment", ">pace", ">fan-in"];
const HISTORY_TITLE: &str = ">keeps";
const LSM_TITLE: &str = "options of lsm";
const KEY_TITLE: &str = "key";

fn list_table(keyspaces: &[KeyspaceInfo]) -> Table {
    let has_lsm = keyspaces.iter().any(|info| info.options.structure == Structure::Lsm);
    let mut titles = vec!["name", ">id", "structure", "codec"];
    titles.extend(FLEX_TITLES);
    titles.extend([">memtable", ">separated from", "merge", ">ttl"]);
    let has_history = keyspaces.iter().any(|info| info.options.structure == Structure::History);
    titles.extend(has_history.then_some(HISTORY_TITLE));
    titles.extend(has_lsm.then_some(LSM_TITLE));
    let has_own_keys = keyspaces.iter().any(|info| info.has_own_key);
    titles.extend(has_own_keys.then_some(KEY_TITLE));
    let mut table = Table::new(&titles);
    for info in keyspaces {
        let options = &info.options;
        let mut cells = vec![
            info.name.escape_debug().to_string(),
            info.id.to_string(),
            info.structure.to_owned(),
            options.codec.to_string(),
        ];
        cells.extend(match options.structure {
            Structure::Flex | Structure::History => [
                bytes_text(u64::from(options.interval_size)),
                bytes_text(u64::from(options.segment_size)),
                options.consolidation_pace.to_string(),
                options.delta_fan_in.to_string(),
            ],
            _ => FLEX_TITLES.map(|_| "-".to_owned()),
        });
        cells.extend([
            options.memtable_size.map_or_else(|| "by budget".to_owned(), bytes_text),
            separation_text(options.value_separation),
            options.merge_operator.as_deref().unwrap_or("-").escape_debug().to_string(),
            options.ttl.map_or_else(|| "-".to_owned(), exact_duration_text),
        ]);
        if has_history {
            cells.push(kept_text(options));
        }
        if has_lsm {
            let text = lsm_text(options);
            cells.push(if text.is_empty() { "-".to_owned() } else { text });
        }
        if has_own_keys {
            cells.push(if info.has_own_key { "own" } else { "-" }.to_owned());
        }
        table.row(cells);
    }
    table
}

/// Which versions a keyspace of structure history keeps; a dash for others.
fn kept_text(options: &KeyspaceOptions) -> String {
    let time = options.keep_for.map(exact_duration_text);
    let count = options.keep_versions.map(|count| format!("{count} versions"));
    match (options.structure, time, count) {
        (Structure::History, None, None) => "all".to_owned(),
        (Structure::History, time, count) => {
            time.into_iter().chain(count).collect::<Vec<_>>().join(", ")
        }
        _ => "-".to_owned(),
    }
}

fn separation_text(from: Option<u32>) -> String {
    from.map_or_else(|| "off".to_owned(), |bytes| bytes_text(u64::from(bytes)))
}

/// What only an Lsm keyspace has, as `NAME=VALUE`; empty for others.
fn lsm_text(options: &KeyspaceOptions) -> String {
    if options.structure != Structure::Lsm {
        return String::new();
    }
    let named = lsm_options(&options.lsm);
    let fields: Vec<String> =
        named.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    fields.join(" ")
}

/// Sizes are in bytes; of a separation of null, no value is separated; a memtable size of null is
/// decided by the memory budget; with a merge operator of null, nothing can be merged; with a ttl
/// of null, what is put does not expire; all versions are kept where both keep_for_millis and
/// keep_versions are null; own_key is there where it is true. Only the options that the structure
/// has.
fn info_json(info: &KeyspaceInfo) -> Value {
    let options = &info.options;
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    put("name", json!(info.name));
    put("id", json!(info.id));
    put("structure", json!(info.structure));
    put("codec", json!(options.codec.to_string()));
    match options.structure {
        Structure::Lsm => {
            for (name, value) in lsm_options(&options.lsm) {
                // Numbers and truth values are what they look like; all else is text.
                let value = serde_json::from_str(&value).unwrap_or(Value::String(value));
                put(&name, value);
            }
        }
        _ => {
            put("interval_size", json!(options.interval_size));
            put("segment_size", json!(options.segment_size));
            // By way of text: 0.6 as an f64 has digits that nobody asked for.
            let pace = options.consolidation_pace.to_string().parse::<f64>().ok();
            put("consolidation_pace", json!(pace));
            put("delta_fan_in", json!(options.delta_fan_in));
        }
    }
    put("memtable_size", json!(options.memtable_size));
    put("value_separation", json!(options.value_separation));
    put("merge_operator", json!(options.merge_operator));
    put("ttl_millis", json!(options.ttl.map(|ttl| ttl.as_millis() as u64)));
    if options.structure == Structure::History {
        put("keep_for_millis", json!(options.keep_for.map(|kept| kept.as_millis() as u64)));
        put("keep_versions", json!(options.keep_versions));
    }
    if info.has_own_key {
        put("own_key", json!(true));
    }
    Value::Object(fields)
}

fn write_csv(out: &mut impl Write, keyspaces: &[KeyspaceInfo], surface: Surface) -> Outcome {
    const TITLES: [&str; 15] = [
        "name",
        "id",
        "structure",
        "codec",
        "interval_size",
        "segment_size",
        "consolidation_pace",
        "delta_fan_in",
        "memtable_size",
        "value_separation",
        "merge_operator",
        "ttl_millis",
        "keep_for_millis",
        "keep_versions",
        "lsm_options",
    ];
    let failed = |error: csv::Error| Failure::Output(error.into());
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(TITLES).map_err(failed)?;
    for info in keyspaces {
        let options = &info.options;
        let of_flex = |value: String| match options.structure {
            Structure::Flex | Structure::History => value,
            _ => String::new(),
        };
        // O3: names are bytes of others.
        let text = |name: &str| match surface {
            Surface::Terminal => shown(name).into_owned(),
            Surface::Stream => name.to_owned(),
        };
        let record: [&str; TITLES.len()] = [
            &text(&info.name),
            &info.id.to_string(),
            info.structure,
            &options.codec.to_string(),
            &of_flex(options.interval_size.to_string()),
            &of_flex(options.segment_size.to_string()),
            &of_flex(options.consolidation_pace.to_string()),
            &of_flex(options.delta_fan_in.to_string()),
            &options.memtable_size.map(|bytes| bytes.to_string()).unwrap_or_default(),
            &options.value_separation.map(|bytes| bytes.to_string()).unwrap_or_default(),
            &text(options.merge_operator.as_deref().unwrap_or_default()),
            &options.ttl.map(|ttl| ttl.as_millis().to_string()).unwrap_or_default(),
            &options.keep_for.map(|kept| kept.as_millis().to_string()).unwrap_or_default(),
            &options.keep_versions.map(|count| count.to_string()).unwrap_or_default(),
            &lsm_text(options),
        ];
        csv.write_record(record).map_err(failed)?;
    }
    Ok(csv.flush()?)
}
