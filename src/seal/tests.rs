//! Keys, slots of keyrings, and what opens with which key.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::base::{Error, SeededEntropy};

const PATH: &str = "/db/KEYRING";
const FILE: FileIdentity = FileIdentity { kind: *b"test", database: 7, owner: 3, number: 9 };

fn seeded(encryption: Encryption) -> Encryption {
    encryption.simulated(Arc::new(SeededEntropy::new(5)))
}

fn cheap(phrase: &str) -> Encryption {
    let cost = PassphraseCost { memory_kib: 64, passes: 1, lanes: 2 };
    seeded(Encryption::passphrase(phrase).passphrase_cost(cost))
}

fn slot_of(encryption: &Encryption) -> Vec<u8> {
    let master = MasterKey::new(encryption, &encryption.random).unwrap();
    Slot::encode(1, 4, &master, &encryption.new_contents(), &encryption.random).unwrap()
}

fn whole(bytes: &[u8]) -> Box<Slot> {
    match Slot::decode(1, bytes) {
        SlotState::Whole(slot) => slot,
        other => panic!("{other:?}"),
    }
}

/// A vault that does what a key service would, to be seen through.
#[derive(Debug)]
struct Xor(u8);

impl Vault for Xor {
    fn wrap_key(&self, secret: &[u8; 32]) -> Result<Vec<u8>, VaultError> {
        Ok([self.0].into_iter().chain(secret.iter().map(|byte| byte ^ self.0)).collect())
    }

    fn unwrap_key(&self, wrapped: &[u8]) -> Result<[u8; 32], VaultError> {
        let failed = || VaultError::Failed("too short".to_owned());
        let (mark, rest) = wrapped.split_first().ok_or_else(failed)?;
        if *mark != self.0 {
            return Err(VaultError::WrongKey);
        }
        let bytes: Vec<u8> = rest.iter().map(|byte| byte ^ self.0).collect();
        bytes.try_into().map_err(|_| failed())
    }
}

#[test]
fn a_slot_opens_with_its_key_and_with_no_other() {
    let vault = |number| seeded(Encryption::vault(Arc::new(Xor(number))));
    let right = [seeded(Encryption::key([1; 32])), cheap("one"), vault(1)];
    let wrong = [seeded(Encryption::key([2; 32])), cheap("two"), vault(2)];
    for (index, encryption) in right.iter().enumerate() {
        let bytes = slot_of(encryption);
        let slot = whole(&bytes);
        assert_eq!(slot.generation, 4);
        let (_, contents) = slot.open(encryption, Path::new(PATH)).unwrap();
        assert_eq!((contents.current, contents.numbers()), (1, vec![1]));
        for other in right.iter().enumerate().filter(|(other, _)| *other != index) {
            let error = slot.open(other.1, Path::new(PATH)).unwrap_err();
            assert!(matches!(error, Error::WrongKey { .. }), "{error}");
        }
        let error = slot.open(&wrong[index], Path::new(PATH)).unwrap_err();
        assert!(matches!(error, Error::WrongKey { .. }), "{error}");
    }
}

#[test]
fn a_vault_that_fails_is_told_from_a_wrong_key() {
    #[derive(Debug)]
    struct Away;
    impl Vault for Away {
        fn wrap_key(&self, _: &[u8; 32]) -> Result<Vec<u8>, VaultError> {
            Err(VaultError::Failed("nobody answers".to_owned()))
        }
        fn unwrap_key(&self, _: &[u8]) -> Result<[u8; 32], VaultError> {
            Err(VaultError::Failed("nobody answers".to_owned()))
        }
    }
    let bytes = slot_of(&seeded(Encryption::vault(Arc::new(Xor(1)))));
    let away = Encryption::vault(Arc::new(Away));
    let error = whole(&bytes).open(&away, Path::new(PATH)).unwrap_err();
    assert!(matches!(error, Error::VaultFailed { .. }), "{error}");
    assert!(matches!(MasterKey::new(&away, &away.random), Err(Error::VaultFailed { .. })));
}

#[test]
fn every_flip_in_a_slot_is_found() {
    let encryption = seeded(Encryption::key([1; 32]));
    let bytes = slot_of(&encryption);
    for index in (0..400).chain((400..SLOT_SIZE).step_by(251)) {
        let mut flipped = bytes.clone();
        flipped[index] ^= 1 << (index % 8);
        assert!(!matches!(Slot::decode(1, &flipped), SlotState::Whole(_)), "byte {index}");
    }
    assert!(matches!(Slot::decode(0, &bytes), SlotState::Damaged(_)), "in the other's place");
}

/// Where a slot says what its passphrase costs: memory, passes, lanes.
const COST_AT: [usize; 3] = [52, 56, 60];

/// A slot whose checksum was made right again.
fn forged(bytes: &[u8], change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut forged = bytes.to_vec();
    change(&mut forged);
    envelope::with_checksum(&mut forged, 1);
    forged
}

/// Before it is known who wrote it, a keyring says how much work it takes to find out.
#[test]
fn a_forged_cost_takes_neither_memory_nor_time_without_end() {
    let bytes = slot_of(&cheap("one"));
    let gib = 1 << 20;
    for cost in [[4 * gib, 1, 1], [u32::MAX; 3], [gib, 17, 1], [64, 1025, 1], [64, 1, 65]] {
        let forged = forged(&bytes, |slot| {
            for (at, number) in COST_AT.into_iter().zip(cost) {
                slot[at..at + 4].copy_from_slice(&number.to_le_bytes());
            }
        });
        assert!(matches!(Slot::decode(1, &forged), SlotState::Damaged(_)), "{cost:?}");
    }
}

/// No length that a slot has leads out of it, or to more memory than it takes itself.
#[test]
fn forged_lengths_are_damage() {
    let bytes = slot_of(&seeded(Encryption::key([1; 32])));
    for at in [112, 116] {
        for len in [SLOT_SIZE as u32, (16 << 10) + 1, u32::MAX, u32::MAX - 120] {
            let forged =
                forged(&bytes, |slot| slot[at..at + 4].copy_from_slice(&len.to_le_bytes()));
            let opened = match Slot::decode(1, &forged) {
                SlotState::Whole(slot) => slot.open(&Encryption::key([1; 32]), Path::new(PATH)),
                SlotState::Damaged(_) => continue,
                SlotState::Unknown(version) => panic!("version {version}"),
            };
            assert!(opened.unwrap_err().is_corruption(), "{len} at {at}");
        }
    }
}

/// Whoever changes a slot can make its checksum right again.
#[test]
fn a_forged_slot_is_damage_or_a_wrong_key() {
    let encryption = seeded(Encryption::key([1; 32]));
    let bytes = slot_of(&encryption);
    for index in (16..300).filter(|index| !(16..24).contains(index)) {
        let forged = forged(&bytes, |slot| slot[index] ^= 1);
        match Slot::decode(1, &forged) {
            SlotState::Whole(slot) => match slot.open(&encryption, Path::new(PATH)) {
                // Behind what is sealed are zeros that nobody looks at.
                Ok(_) => assert!(index >= 120 + 4 + 34 + SEAL_LEN, "byte {index}"),
                Err(error) => {
                    let is_either =
                        matches!(error, Error::WrongKey { .. } | Error::Corruption { .. });
                    assert!(is_either, "byte {index}: {error}");
                }
            },
            SlotState::Damaged(_) => {}
            SlotState::Unknown(_) => panic!("byte {index}"),
        }
    }
}

#[test]
fn a_message_opens_with_its_file_s_key_at_its_place_only() {
    let encryption = seeded(Encryption::key([1; 32]));
    let keyring = encryption.keyring(encryption.new_contents());
    let key = keyring.key_for_new(&FILE).unwrap();
    let mut sealed = b"a message".to_vec();
    key.seal_tail(b"here", &mut sealed, 0);
    assert_eq!(sealed.len(), 9 + SEAL_LEN);
    assert_eq!(key.open_sealed(b"here", &mut sealed.clone()), Some(&b"a message"[..]));
    assert_eq!(key.open_sealed(b"there", &mut sealed.clone()), None);
    for other in [
        FileIdentity { kind: *b"tset", ..FILE },
        FileIdentity { database: 8, ..FILE },
        FileIdentity { owner: 4, ..FILE },
        FileIdentity { number: 10, ..FILE },
    ] {
        let key = keyring.key_for_new(&other).unwrap();
        assert_eq!(key.open_sealed(b"here", &mut sealed.clone()), None, "{other:?}");
    }
    for index in 0..sealed.len() {
        for bit in 0..8 {
            let mut flipped = sealed.clone();
            flipped[index] ^= 1 << bit;
            assert_eq!(key.open_sealed(b"here", &mut flipped), None, "bit {bit} of {index}");
        }
        assert_eq!(key.open_sealed(b"here", &mut sealed[..index].to_vec()), None);
    }
    // Another database has another key of the same number for the same file.
    let other = encryption.keyring(encryption.new_contents());
    let other = other.key_for_new(&FILE).unwrap();
    assert_eq!(other.open_sealed(b"here", &mut sealed.clone()), None);
}

#[test]
fn files_keep_their_key_when_there_is_a_new_one() {
    let encryption = seeded(Encryption::key([1; 32]));
    let keyring = Arc::new(encryption.keyring(encryption.new_contents()));
    let old = keyring.key_for_new(&FILE).unwrap();
    let mut sealed = b"a message".to_vec();
    old.seal_tail(b"", &mut sealed, 0);
    keyring.replace(keyring.with_new_keys().unwrap());
    let new = keyring.key_for_new(&FILE).unwrap();
    assert_eq!((old.id(), new.id()), (1, 2));
    assert_eq!(new.open_sealed(b"", &mut sealed.clone()), None);
    let found = |number| Keyring::of_found(Some(&keyring), number, &FILE, Path::new("f"));
    assert!(found(1).unwrap().unwrap().open_sealed(b"", &mut sealed.clone()).is_some());
    keyring.replace(keyring.without_keys(&keyring.contents().older()));
    assert!(found(1).unwrap_err().is_corruption());
    assert!(found(0).unwrap_err().is_corruption(), "a file that is not sealed");
    let without = Keyring::of_found(None, 2, &FILE, Path::new("f"));
    assert!(matches!(without, Err(Error::KeyNeeded { .. })));
    assert!(Keyring::of_found(None, 0, &FILE, Path::new("f")).unwrap().is_none());
}

fn keyring() -> Keyring {
    let encryption = seeded(Encryption::key([1; 32]));
    encryption.keyring(encryption.new_contents())
}

fn without(keyring: &Keyring, owners: &[u64]) -> Option<KeyringContents> {
    keyring.without_owners(|owner| owners.contains(&owner)).unwrap()
}

fn of_owner(keyring: &Keyring, owner: u64) -> u16 {
    let key = keyring.key_for_new(&FileIdentity { owner, ..FILE }).unwrap();
    assert_eq!(key.id(), keyring.number_for(owner));
    key.id()
}

#[test]
fn who_has_a_key_of_its_own_is_given_no_other_and_nobody_else_is_given_that() {
    const LOG: FileIdentity = FileIdentity { kind: *b"wal ", owner: 0, ..FILE };
    let keyring = keyring();
    keyring.replace(keyring.with_own_key(&[7, 8]).unwrap());
    assert_eq!([7, 8, 9, 0].map(|owner| of_owner(&keyring, owner)), [2, 2, 1, 1]);
    assert_eq!(keyring.key_for_new(&LOG).unwrap().id(), 3);
    keyring.replace(keyring.with_own_key(&[9]).unwrap());
    keyring.replace(keyring.with_shared_key(9, &[11], |_| true).unwrap().unwrap());
    assert!(keyring.with_shared_key(10, &[12], |_| true).unwrap().is_none());
    assert_eq!([7, 9, 11, 12].map(|owner| of_owner(&keyring, owner)), [2, 4, 4, 1]);
    let contents = keyring.with_shared_key(9, &[12], |owner| owner == 8).unwrap().unwrap();
    let numbers = [7, 8, 9, 11, 12].map(|owner| contents.own_number(owner));
    assert_eq!(numbers, [Some(2), Some(2), Some(4), None, Some(4)], "11 is not in use");
    assert_eq!(keyring.key_for_new(&LOG).unwrap().id(), 3, "it has one already");
    assert!(keyring.contents().older().is_empty() && keyring.contents().retired.is_empty());
    // Another key for everything.
    keyring.replace(keyring.with_new_keys().unwrap());
    let numbers = [1, 7, 8, 9, 11, LOG_OWNER].map(|owner| keyring.number_for(owner));
    assert_eq!((numbers[1], numbers[3]), (numbers[2], numbers[4]));
    assert_eq!(BTreeSet::from(numbers).len(), 4, "{numbers:?}");
    assert!(numbers.iter().all(|number| (5..=8).contains(number)), "{numbers:?}");
    assert_eq!(keyring.contents().older(), BTreeSet::from([1, 2, 3, 4]));
    keyring.replace(keyring.without_keys(&keyring.contents().older()));
    assert_eq!(keyring.contents().numbers(), [5, 6, 7, 8]);
}

#[test]
fn a_key_whose_owner_is_gone_is_used_for_what_is_under_way_until_it_is_destroyed() {
    let keyring = keyring();
    keyring.replace(keyring.with_own_key(&[7, 8]).unwrap());
    keyring.replace(keyring.with_own_key(&[9]).unwrap());
    let knows = |known: &[u64]| keyring.with_known_owners(|owner| known.contains(&owner)).unwrap();
    assert!(knows(&[7, 8, 9]).is_none() && without(&keyring, &[6]).is_none());
    assert!(knows(&[7, 9]).is_none(), "the two have one key");
    let contents = without(&keyring, &[8]).unwrap();
    assert!(contents.retired.is_empty() && contents.number_for(8) == 1, "the other has it");
    let contents = knows(&[9]).unwrap();
    assert_eq!(contents.retired, BTreeSet::from([2, 3]), "its own, and the log's of then");
    keyring.replace(contents);
    assert_eq!([7, 8, 9].map(|owner| of_owner(&keyring, owner)), [2, 2, 4]);
    assert_eq!(keyring.number_for(LOG_OWNER), 5);
    // Not keys that are in use, whoever asks.
    keyring.replace(keyring.without_keys(&[1, 2, 3, 4, 5].into()));
    assert_eq!(keyring.contents().numbers(), [1, 4, 5]);
    let refused = keyring.key_for_new(&FileIdentity { owner: 7, ..FILE });
    assert!(matches!(refused, Err(Error::InvalidArgument { .. })), "{refused:?}");
    assert_eq!([9, 10].map(|owner| of_owner(&keyring, owner)), [4, 1]);
    // Numbers do not come again.
    keyring.replace(without(&keyring, &[9]).unwrap());
    keyring.replace(keyring.without_keys(&keyring.contents().retired));
    keyring.replace(keyring.with_own_key(&[12]).unwrap());
    assert_eq!(keyring.number_for(12), 7);
    assert!(keyring.has_found(1) && ![4, 6, 7].iter().any(|number| keyring.has_found(*number)));
}

#[test]
fn owners_and_keys_that_are_to_be_destroyed_come_back_from_a_slot() {
    let encryption = seeded(Encryption::key([1; 32]));
    let keyring = encryption.keyring(encryption.new_contents());
    let again = || {
        let contents = keyring.contents();
        let master = MasterKey::new(&encryption, &encryption.random).unwrap();
        let bytes = Slot::encode(1, 4, &master, &contents, &encryption.random).unwrap();
        let (_, found) = whole(&bytes).open(&encryption, Path::new(PATH)).unwrap();
        let as_is = |of: &KeyringContents| {
            (of.current, of.newest, of.numbers(), of.owners.clone(), of.retired.clone())
        };
        assert_eq!(as_is(&found), as_is(&contents));
    };
    again();
    keyring.replace(keyring.with_own_key(&[7, 8]).unwrap());
    again();
    keyring.replace(without(&keyring, &[7, 8]).unwrap());
    again();
    keyring.replace(keyring.without_keys(&keyring.contents().retired));
    again();
}

#[test]
fn there_is_room_to_replace_and_to_destroy_whatever_keys_there_are() {
    let encryption = seeded(Encryption::key([1; 32]));
    let keyring = encryption.keyring(encryption.new_contents());
    let fits = || {
        let master = MasterKey::new(&encryption, &encryption.random).unwrap();
        Slot::encode(0, 1, &master, &keyring.contents(), &encryption.random).map(drop)
    };
    let mut owners = 0;
    let refused = loop {
        match keyring.with_own_key(&[owners + 1, owners + 2]) {
            Ok(contents) => keyring.replace(contents),
            Err(refused) => break refused,
        }
        owners += 2;
    };
    assert!(matches!(refused, Error::InvalidArgument { .. }), "{refused}");
    assert!(keyring.with_shared_key(1, &[owners + 1], |_| true).is_ok_and(|it| it.is_some()));
    assert!((1000..1200).contains(&owners), "{owners}");
    fits().unwrap();
    let contents = keyring.contents();
    // A rotation; then, of each, what drops it, nothing going in between.
    keyring.replace(keyring.with_new_keys().unwrap());
    fits().unwrap();
    assert!(keyring.with_own_key(&[owners + 1]).is_err());
    keyring.take_back(contents);
    for owner in (1..=owners).step_by(2) {
        keyring.replace(without(&keyring, &[owner, owner + 1]).unwrap());
    }
    fits().unwrap();
    assert!(keyring.contents().owners.keys().eq(&[LOG_OWNER]));
    keyring.replace(keyring.without_keys(&keyring.contents().to_destroy()));
    assert_eq!(keyring.contents().numbers().len(), 2);
}

#[test]
fn the_last_numbers_are_kept_for_drops() {
    let keyring = keyring();
    keyring.replace(keyring.with_own_key(&[7]).unwrap());
    keyring.replace(keyring.with_own_key(&[8]).unwrap());
    let mut contents = keyring.contents();
    contents.newest = u16::MAX - 4;
    keyring.replace(contents);
    assert!(keyring.with_new_keys().is_err(), "a rotation takes four");
    let another = keyring.with_own_key(&[9]);
    assert!(matches!(another, Err(Error::InvalidArgument { .. })), "each, and the log, needs one");
    for owner in [7, 8] {
        keyring.replace(without(&keyring, &[owner]).unwrap());
    }
    keyring.replace(keyring.without_keys(&keyring.contents().to_destroy()));
    assert_eq!(keyring.contents().numbers(), [1, u16::MAX - 2]);
}

#[test]
fn keys_of_before_a_rotation_are_to_be_destroyed_with_those_of_who_is_gone() {
    let keyring = keyring();
    keyring.replace(keyring.with_new_keys().unwrap());
    assert!(keyring.contents().to_destroy().is_empty(), "nobody has one of its own");
    keyring.replace(keyring.without_keys(&[1].into()));
    keyring.replace(keyring.with_own_key(&[7]).unwrap());
    assert!(keyring.contents().to_destroy().is_empty());
    keyring.replace(keyring.with_new_keys().unwrap());
    keyring.replace(without(&keyring, &[7]).unwrap());
    // 2 is that of all, 3 and 6 were that of 7, 4 and 7 the log's.
    assert_eq!(keyring.contents().older(), [2, 3, 4].into());
    let numbers = keyring.contents().numbers();
    assert_eq!(keyring.contents().to_destroy().len(), numbers.len() - 2, "{numbers:?}");
}

#[test]
fn what_is_left_of_a_header_says_which_key_its_file_has_first_and_then_all_others_come() {
    let encryption = seeded(Encryption::key([1; 32]));
    let keyring = Arc::new(encryption.keyring(encryption.new_contents()));
    keyring.replace(keyring.with_own_key(&[7]).unwrap());
    keyring.replace(keyring.with_new_keys().unwrap());
    // 4 is that of all, and 1 was; 2 and 5 are those of 7, 3 and 6 the log's.
    let of = |left: &[u32], owner: u64| {
        let file = FileIdentity { owner, ..FILE };
        let keys = Keyring::of_damaged(Some(&keyring), left.iter().copied(), &file);
        keys.iter().map(|key| key.id()).collect::<Vec<u16>>()
    };
    assert_eq!(of(&[version_field(1)], 0), [1, 4, 3, 2, 6, 5]);
    assert_eq!(of(&[u32::MAX, version_field(6)], 7), [6, 5, 3, 2, 1, 4]);
    // No field, none that is one, a file that is not sealed, a key that is not there.
    for nothing in [&[][..], &[0xFF_FFFF], &[version_field(0)], &[version_field(9)]] {
        assert_eq!(of(nothing, 0), [4, 3, 2, 1, 6, 5], "{nothing:?}");
        assert_eq!(of(nothing, 7)[0], 5, "{nothing:?}");
    }
    assert!(Keyring::of_damaged(None, [version_field(1)], &FILE).is_empty());
}

#[test]
#[should_panic(expected = "B1")]
fn a_nonce_that_comes_twice_is_noticed() {
    let encryption = seeded(Encryption::key([1; 32]));
    let key = encryption.keyring(encryption.new_contents()).key_for_new(&FILE).unwrap();
    let nonce = key.draw_nonce();
    let _same_message_twice = [key.seal(&nonce, b"", &mut [1]), key.seal(&nonce, b"", &mut [1])];
    let _another = key.seal(&nonce, b"", &mut [2]);
}

#[test]
fn nothing_that_is_shown_has_a_secret() {
    let secret = [0xA5; 32];
    let shown = |text: String| {
        assert!(
            !text.contains("165") && !text.contains("a5") && !text.contains("hunter2"),
            "{text}"
        );
    };
    let encryption = Encryption::key(secret);
    shown(format!("{encryption:?} {:?}", Encryption::passphrase("hunter2")));
    let master = MasterKey { secret: secret::Secret::take(&mut secret.clone()), ..master() };
    shown(format!("{:?}", master.secret));
    let keyring = encryption.keyring(encryption.new_contents());
    shown(format!("{keyring:?}"));
}

fn master() -> MasterKey {
    let encryption = seeded(Encryption::key([1; 32]));
    MasterKey::new(&encryption, &encryption.random).unwrap()
}

#[test]
fn costs_that_cannot_be_are_refused() {
    for (memory_kib, passes, lanes) in
        [(0, 1, 1), (64, 0, 1), (64, 1, 0), (64, 1, 64), (u32::MAX, 1, 1), (1 << 20, 17, 1)]
    {
        let cost = PassphraseCost { memory_kib, passes, lanes };
        let encryption = Encryption::passphrase("p").passphrase_cost(cost);
        let error = MasterKey::new(&encryption, &encryption.random).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{cost:?}");
    }
    assert!(PassphraseCost::default().is_sane());
    assert!(PassphraseCost::default().memory_kib >= 64 << 10);
}

/// Slots and a message that another program has made, after `docs/format/sealing.md`: their
/// bytes but for zeros behind them, and the checksum, which is put in.
const SLOT_OF_KEY: &str = "\
    4c495448454b45590000000000000000010000000100000004000000000000001011121314151617\
    18191a1b1c1d1e1f01000000000000000000000000000000202122232425262728292a2b2c2d2e2f\
    3bb8ad0bf6b4dd00e628929bc7d6fd53bfa14ae820a7df3e01bfd7904162d75f0000000070000000\
    6cd0110b211fd2c8a84b6667303d89c46ca2700a85c8deb96ac87b7baea10346f35842873a69a1b5\
    f470a496cb7ea09996020c8afee9b1443809eb958d6da9075d588a9fd05766673031323334353637\
    38393a3b3c3d3e3f40414243444546473d015f82f1c3c4090b6bf57e26c945e1";
const SLOT_OF_PASSPHRASE: &str = "\
    4c495448454b45590000000000000000010000000100000004000000000000001011121314151617\
    18191a1b1c1d1e1f02000000400000000200000002000000202122232425262728292a2b2c2d2e2f\
    700c82133fba6461748c8badd411521922201cb9465b09cb6165944cd874146f0000000070000000\
    1be84e0b92c47c0b3508c1cc51e2d31eb2c03e989234c0a28ccd82ef266c81393ee8a8ccf4492813\
    3dd2e68772634a8b214b02f2beca4e29886f83d70d8405f1eb3a530550f862fd3031323334353637\
    38393a3b3c3d3e3f40414243444546478e4ebd74456ad64c49d10be368f7bbe3";
const SLOT_OF_XAES: &str = "\
    4c495448454b45590000000000000000010000000200000004000000000000001011121314151617\
    18191a1b1c1d1e1f01000000000000000000000000000000202122232425262728292a2b2c2d2e2f\
    3bb8ad0bf6b4dd00e628929bc7d6fd53bfa14ae820a7df3e01bfd7904162d75f0000000070000000\
    3dc85609b339fb180836b74d6314732bdd4b48cbeb17d4bf23eb5fea4f314047d219468dba4c975a\
    4ce72c697bc5d6c33898c72f9e52f8ac5f3d78111af410bcd0cd5b9f95ebdbf23031323334353637\
    38393a3b3c3d3e3f404142434445464712454bd17bba220f93063ddb37253df7";
const MESSAGE_OF_XAES: &str = "\
    f94450d08e3bd994d5303132333435363738393a3b3c3d3e3f404142434445464793161505e45a62\
    55d7476ee034350d12";
const SEALED_MESSAGE: &str = "\
    a585a0590f0f644f52303132333435363738393a3b3c3d3e3f4041424344454647dba2b37ba1a6d8\
    9523536a03fd476270";

fn bytes_of(digits: &str) -> Vec<u8> {
    let digits: Vec<u32> =
        digits.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16).unwrap()).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

fn recorded_slot(digits: &str) -> Box<Slot> {
    let mut bytes = bytes_of(digits);
    bytes.resize(SLOT_SIZE, 0);
    whole(&forged(&bytes, |_| {}))
}

/// A sequence that goes on from 0x30 byte by byte.
#[derive(Debug, Default)]
struct Counting(std::sync::atomic::AtomicU64);

impl crate::base::Entropy for Counting {
    fn next_u64(&self) -> u64 {
        let first = 0x30 + self.0.fetch_add(8, std::sync::atomic::Ordering::Relaxed);
        u64::from_le_bytes(std::array::from_fn(|index| first as u8 + index as u8))
    }
}

fn recorded_keyring() -> Keyring {
    keyring_in(SLOT_OF_KEY)
}

fn keyring_in(slot: &str) -> Keyring {
    let encryption = Encryption::key(std::array::from_fn(|index| index as u8));
    let opened = recorded_slot(slot).open(&encryption, Path::new(PATH));
    encryption.simulated(Arc::new(Counting::default())).keyring(opened.unwrap().1)
}

/// The key of a file of which other parts have recorded bytes: nonces that it draws go on from 0x30
/// byte by byte.
pub(crate) fn recorded_key() -> Arc<FileKey> {
    recorded_keyring().key_for_new(&FILE).unwrap()
}

/// The same key, with nonces from the kernel: of as many messages as one likes.
pub(crate) fn drawing_key() -> Arc<FileKey> {
    let encryption = Encryption::key([1; 32]);
    encryption.keyring(recorded_keyring().contents()).key_for_new(&FILE).unwrap()
}

#[test]
fn the_bytes_are_those_of_the_document() {
    let passphrase = Encryption::passphrase("correct horse");
    let (_, contents) =
        recorded_slot(SLOT_OF_PASSPHRASE).open(&passphrase, Path::new(PATH)).unwrap();
    assert_eq!((contents.current, contents.numbers()), (3, vec![1, 3]));
    assert_eq!(*contents.keys[&1].bytes(), [0x51; 32]);
    let contents = recorded_keyring().contents();
    assert_eq!((contents.current, contents.numbers()), (3, vec![1, 3]));
    assert_eq!(*contents.keys[&3].bytes(), [0x53; 32]);
    let mut sealed = b"a message".to_vec();
    recorded_key().seal_tail(b"here", &mut sealed, 0);
    assert_eq!(sealed, bytes_of(SEALED_MESSAGE));
    assert_eq!(recorded_slot(SLOT_OF_KEY).cipher(), Cipher::XChaCha20Poly1305);
    assert_eq!(recorded_slot(SLOT_OF_XAES).cipher(), Cipher::XAes256Gcm);
    let mut sealed = b"a message".to_vec();
    keyring_in(SLOT_OF_XAES).key_for_new(&FILE).unwrap().seal_tail(b"here", &mut sealed, 0);
    assert_eq!(sealed, bytes_of(MESSAGE_OF_XAES));
}

/// A keyring says its cipher; whoever opens it asks for none, or for another.
#[test]
fn a_database_keeps_its_cipher() {
    for cipher in [Cipher::XChaCha20Poly1305, Cipher::XAes256Gcm] {
        let made = seeded(Encryption::key([1; 32])).cipher(cipher);
        let slot = whole(&slot_of(&made));
        assert_eq!(slot.cipher(), cipher);
        for other in [Cipher::XChaCha20Poly1305, Cipher::XAes256Gcm] {
            let opening = seeded(Encryption::key([1; 32])).cipher(other);
            let (master, contents) = slot.open(&opening, Path::new(PATH)).unwrap();
            assert_eq!(contents.cipher, cipher);
            let again = Slot::encode(1, 5, &master, &contents, &opening.random).unwrap();
            assert_eq!(whole(&again).cipher(), cipher);
        }
    }
    let mut unknown = slot_of(&seeded(Encryption::key([1; 32])));
    unknown[20] = 3;
    let found = Slot::decode(1, &forged(&unknown, |_| {}));
    assert!(matches!(found, SlotState::Unknown(_)), "{found:?}");
}
