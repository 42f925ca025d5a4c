//! Limits, stored forms, and what is refused.

use super::*;

#[test]
fn defaults_are_valid_and_the_message_names_option_value_and_range() {
    KeyspaceOptions::default().validate().unwrap();
    let flex = KeyspaceOptions::flex;
    let wrong = [
        (flex().interval_size(511), "interval_size is 511: allowed are 512 to 1048576"),
        (flex().segment_size(1), "segment_size is 1: allowed are 4096 to 268435456"),
        (flex().consolidation_pace(f32::NAN), "consolidation_pace is NaN: allowed are 0.05"),
        (flex().consolidation_pace(8.1), "consolidation_pace is 8.1: allowed are 0.05 to 8"),
        (flex().delta_fan_in(1), "delta_fan_in is 1: allowed are 2 to 64, or 0 for never"),
        (flex().memtable_size(1), "memtable_size is 1: allowed are 4096 to 1073741824"),
        (flex().merge_operator(""), "the length of merge_operator is 0: allowed are 1 to 255"),
        (flex().ttl(Duration::ZERO), "ttl in milliseconds is 0: allowed are 1 to 28147497671"),
        (
            flex().ttl(Duration::from_secs(1)).merge_operator("min"),
            "ttl and merge_operator (\"min\") do not go together",
        ),
        (flex().value_separation(Some(63)), "value_separation is 63: allowed are 64 to 10737"),
    ];
    for (options, message) in wrong {
        let error = options.validate().unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
    flex().delta_fan_in(0).segment_size(4 << 10).validate().unwrap();
    KeyspaceOptions::lsm().validate().unwrap();
    let lsm = KeyspaceOptions::lsm;
    let history = KeyspaceOptions::history;
    let leveled = |leveled| lsm().compaction(Compaction::Leveled(leveled));
    let tiered = |tiered| lsm().compaction(Compaction::Tiered(tiered));
    let wrong = [
        (lsm().table_size(1), "table_size is 1: allowed are 1024 to 1073741824"),
        (lsm().block_size(511), "block_size is 511: allowed are 512 to 1048576"),
        (lsm().restart_interval(1025), "restart_interval is 1025: allowed are 0 to 1024"),
        (lsm().dictionary_size(255), "dictionary_size is 255: allowed are 256 to 262144"),
        (lsm().dictionary_size(1 << 20), "dictionary_size is 1048576: allowed are 256 to 262144"),
        (lsm().filter_bits(33), "filter_bits is 33: allowed are 0 to 32"),
        (lsm().filter_bits(0).filter_prefix_len(1), "there is no filter"),
        (lsm().codec(Codec::Zstd(23)), "no codec zstd:23: levels are 1 to 22"),
        (lsm().level_codec(6, Codec::Zstd(0)), "no codec zstd:0"),
        (leveled(Leveled::new().level0_trigger(1)), "level0_trigger is 1: allowed are 2 to 64"),
        (leveled(Leveled::new().level_ratio(f32::NAN)), "level_ratio is NaN"),
        (tiered(Tiered::new().bucket(0.0..=2.0)), "bucket_low is 0: allowed are 0.05 to 1"),
        (tiered(Tiered::new().bucket(1.0..=0.5)), "bucket_high is 0.5: allowed are 1 to 20"),
        (tiered(Tiered::new().threshold(33)), "threshold is 33: allowed are 2 to 32"),
        (tiered(Tiered::new().run_count_max(1)), "run_count_max is 1: allowed are 2 to 200"),
        (tiered(Tiered::new().garbage_max(9.0)), "garbage_max is 9: allowed are 0.05 to 8"),
        (flex().table_size(1 << 20), "structure flex has no options of structure lsm"),
        (flex().level_codec(0, Codec::None), "structure flex has no options of structure lsm"),
        (lsm().interval_size(4096), "structure lsm has no interval_size"),
        (lsm().segment_size(4096), "structure lsm has no segment_size"),
        (lsm().consolidation_pace(1.0), "structure lsm has no consolidation_pace"),
        (lsm().delta_fan_in(2), "structure lsm has no delta_fan_in"),
        (lsm().keep_versions(2), "structure lsm has no keep_versions"),
        (flex().keep_for(Duration::from_secs(1)), "structure flex has no keep_for"),
        (history().keep_versions(0), "keep_versions is 0: allowed are 1 to 1000000"),
        (history().keep_for(Duration::ZERO), "keep_for in milliseconds is 0: allowed are 1 to"),
        (KeyspaceOptions { kept_from: SeqNo::MAX, ..history() }, "only archives"),
        (KeyspaceOptions { has_ingests: true, ..history() }, "only archives have has_ingests"),
    ];
    for (options, message) in wrong {
        let error = options.validate().unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
    let zstd = lsm().level_codec(6, Codec::zstd());
    match Codec::zstd().is_available() {
        true => zstd.validate().unwrap(),
        false => {
            let error = zstd.validate().unwrap_err().to_string();
            assert!(error.contains("feature \"zstd\""), "{error}");
            zstd.check_limits().unwrap(); // A keyspace of another program is opened.
        }
    }
}

#[test]
fn a_level_without_a_codec_of_its_own_has_that_of_the_keyspace() {
    let options = KeyspaceOptions::lsm().level_codec(0, Codec::None).codec(Codec::Lz4);
    let codecs: Vec<Codec> = (0..=6).map(|level| options.codec_of_level(level)).collect();
    assert_eq!(codecs[..2], [Codec::None, Codec::Lz4]);
    assert!(codecs[1..].iter().all(|codec| *codec == Codec::Lz4));
}

/// What earlier programs have written.
#[test]
fn the_stored_form_of_a_flex_keyspace_has_not_changed() {
    let mut bytes = Vec::new();
    KeyspaceOptions::flex().codec(Codec::Lz4).memtable_size(4096).encode(&mut bytes);
    let expected = b"\x00\x07\x05codec\x01\x0dinterval_size\x80\x80\x01\x0csegment_size\
        \x80\x80\x80\x02\x12consolidation_pace\xf4\x03\x0cdelta_fan_in\x08\
        \x10value_separation\x80\x20\x0dmemtable_size\x80\x20";
    assert_eq!(bytes, expected);
}

fn decode(bytes: &[u8]) -> Decoded<KeyspaceOptions> {
    let mut fields = Fields::new(bytes);
    let options = KeyspaceOptions::decode(&mut fields)?;
    fields.finish().map(|()| options)
}

#[test]
fn options_round_trip_and_every_cut_is_refused() {
    let all = [
        KeyspaceOptions::flex(),
        KeyspaceOptions::flex()
            .codec(Codec::Lz4)
            .interval_size(1 << 20)
            .segment_size(64 << 10)
            .consolidation_pace(0.123)
            .delta_fan_in(0)
            .memtable_size(1 << 30)
            .value_separation(Some(64)),
        KeyspaceOptions::flex().value_separation(None),
        KeyspaceOptions::flex().consolidation_pace(8.0).delta_fan_in(64),
        KeyspaceOptions::flex().merge_operator("counter"),
        KeyspaceOptions::flex().ttl(Duration::from_millis(90_000)),
        KeyspaceOptions::flex().codec(Codec::Zstd(22)),
        KeyspaceOptions::history(),
        KeyspaceOptions::history().keep_for(Duration::from_millis(1)).keep_versions(1_000_000),
        KeyspaceOptions {
            kept_from: SeqNo::from_u64(u64::MAX),
            ..KeyspaceOptions::history().keep_for(Duration::from_secs(9)).of_archive(7, None)
        },
        KeyspaceOptions::lsm(),
        KeyspaceOptions::lsm()
            .codec(Codec::Snappy)
            .compaction(Compaction::Leveled(Leveled::new().level0_trigger(64).level_ratio(1.5)))
            .table_size(1 << 30)
            .block_size(1 << 20)
            .restart_interval(1024)
            .filter_bits(32)
            .filter_prefix_len(255)
            .pin_indexes(true)
            .dictionary_size(256 << 10)
            .level_codec(0, Codec::None)
            .level_codec(6, Codec::Zstd(9))
            .memtable_size(4096)
            .merge_operator("counter"),
        KeyspaceOptions::lsm().filter_bits(0).ttl(Duration::from_millis(1)).compaction(
            Compaction::Tiered(
                Tiered::new()
                    .bucket(0.05..=20.0)
                    .threshold(32)
                    .run_count_max(200)
                    .garbage_max(0.125),
            ),
        ),
    ];
    for options in all {
        let mut bytes = Vec::new();
        options.encode(&mut bytes);
        assert_eq!(decode(&bytes).unwrap(), options);
        for cut in 0..bytes.len() {
            assert!(decode(&bytes[..cut]).is_err(), "cut to {cut}");
        }
    }
}

#[test]
fn unknown_options_values_and_structures_are_named() {
    let mut bytes = vec![0, 1];
    put_text(&mut bytes, "colour");
    bytes.push(1);
    let error = decode(&bytes).unwrap_err();
    assert!(error.what.contains("\"colour\" is unknown"), "{}", error.what);

    let mut bytes = vec![0, 1];
    put_text(&mut bytes, "codec");
    bytes.push(77);
    let error = decode(&bytes).unwrap_err();
    assert!(error.what.contains("\"codec\" has the unknown value 77"), "{}", error.what);

    let error = decode(&[3, 0]).unwrap_err();
    assert!(error.what.contains("unknown structure 3"), "{}", error.what);

    // Those of another structure, or of another style of compaction, are unknown too.
    for (structure, names) in [
        (0, &["table_size"][..]),
        (0, &["codec_6"]),
        (1, &["interval_size"]),
        (1, &["threshold"]),
        (1, &["codec_7"]),
        (1, &["codec_06"]),
        (1, &["compaction", "level0_trigger"]),
    ] {
        let mut bytes = vec![structure, names.len() as u8];
        for name in names {
            put_text(&mut bytes, name);
            bytes.push(1);
        }
        let error = decode(&bytes).unwrap_err();
        let last = names[names.len() - 1];
        assert!(error.what.contains(&format!("{last:?} is unknown")), "{}", error.what);
    }
    for (name, value) in [("compaction", 2), ("pin_indexes", 2), ("codec_0", 9), ("codec", 3)] {
        let mut bytes = vec![1, 1];
        put_text(&mut bytes, name);
        bytes.push(value);
        let error = decode(&bytes).unwrap_err();
        let expected = format!("{name:?} has the unknown value {value}");
        assert!(error.what.contains(&expected), "{}", error.what);
    }
}

#[test]
fn what_is_kept_in_a_unit_is_rounded_to_it_once() {
    let ttl = |nanos| KeyspaceOptions::flex().ttl(Duration::from_nanos(nanos)).rounded().ttl;
    assert_eq!(ttl(1_000_000), Some(Duration::from_millis(1)));
    assert_eq!(ttl(1_000_001), Some(Duration::from_millis(2)));
    let longest = Duration::from_millis(MOMENT_MAX) + Duration::from_nanos(1);
    let longest = KeyspaceOptions::flex().ttl(longest);
    longest.validate().unwrap();
    assert_eq!(longest.rounded().ttl, Some(Duration::from_millis(MOMENT_MAX)));
    let options = KeyspaceOptions::flex().consolidation_pace(0.1234).rounded();
    assert_eq!(options, KeyspaceOptions::flex().consolidation_pace(0.123));
}

#[test]
fn a_memtable_size_that_was_allowed_once_is_taken_for_the_largest() {
    let mut stored = Vec::new();
    KeyspaceOptions::flex().memtable_size(64 << 30).encode(&mut stored);
    let options = KeyspaceOptions::decode(&mut Fields::new(&stored)).unwrap();
    assert_eq!(options, KeyspaceOptions::flex().memtable_size(1 << 30));
}
