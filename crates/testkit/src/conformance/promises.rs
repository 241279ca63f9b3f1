//! Promises around the operations: maintenance, panics, errors, figures, names.

use core::time::Duration;
use std::collections::BTreeSet;

use everhash_index::{Change, Checked, Choice, Design, Error, Form, Setting, Sizing};
use everhash_pmem::{Boot, Image, Media, pool};

use super::{holds, load, roomy};
use crate::Failure;
use crate::OpenTable;
use crate::failure::{ensure, no_panic};
use crate::model::Pairs;
use crate::settle;
use crate::workload::Shape;

pub(super) fn maintenance_comes_to_an_end(
    design: &Design<Image>,
    form: Form,
) -> Result<(), Failure> {
    let (session, shape) = (roomy(design, form)?, Shape::tiny(form));
    let mut now = settle(session.table(), Duration::ZERO, 64)?;
    let pairs = load(session.table(), &shape, 0..120, 0)?;
    // No budget, no time, and all the time in the world.
    for (ahead, budget) in [(0, 0), (0, 1), (1, 1), (1_000_000_000, u32::MAX)] {
        now += Duration::from_secs(ahead);
        session.table().maintain(now, budget)?;
        holds(&session, &shape, &pairs)?;
    }
    settle(session.table(), now, 64)?;
    holds(&session, &shape, &pairs)
}

pub(super) fn a_panic_in_modify_publishes_nothing(
    design: &Design<Image>,
    form: Form,
) -> Result<(), Failure> {
    let (mut session, shape) = (roomy(design, form)?, Shape::tiny(form));
    let pairs = load(session.table(), &shape, 0..20, 0)?;
    for number in [3, 50] {
        let key = shape.key(number);
        // `resume_unwind` and not `panic!`: nothing is printed.
        let thrown = no_panic(|| {
            let change = &mut |_: Option<&[u8]>| std::panic::resume_unwind(Box::new("thrown"));
            Ok(session.table().modify(&key, change)?)
        });
        ensure!(thrown.is_err(), "modify swallowed a panic");
        let mut value = Vec::new();
        // The table may refuse that key from now on, but it must not show another value.
        match session.table().get(&key, &mut value) {
            Ok(found) => {
                let right = found.then_some(&value) == pairs.get(&key);
                ensure!(right, "a modify that panicked has changed its key");
            }
            Err(Error::Poisoned) => {}
            Err(error) => return Err(error.into()),
        }
        let again = session.table().modify(&key, &mut |_| Change::Keep);
        let right = matches!(again, Ok(()) | Err(Error::Poisoned));
        ensure!(right, "after a modify that panicked, another returned {again:?}");
        // Even engines that batch: the writes before were not all synced, but nothing ended.
        session.kill_unsynced()?;
    }
    if !design.batches() {
        holds(&session, &shape, &pairs)?;
    }
    Ok(())
}

pub(super) fn errors_carry_no_keys(design: &Design<Image>, form: Form) -> Result<(), Failure> {
    let session = OpenTable::tiny(design, form, 64 << 10)?;
    let shape = Shape::tiny(form);
    let table = session.table();
    let secret = b"SECRETSECRETSECRETSECRET";
    let mut errors = vec![
        table.put(&secret[..9], secret).map(drop).err(),
        table.put(&secret.repeat(4000), &secret[..]).map(drop).err(),
        table.insert(&shape.key(1), &secret.repeat(1 << 20)).map(drop).err(),
        table.update(&secret[..9], &secret[..9]).map(drop).err(),
        table.modify(&secret[..9], &mut |_| Change::Put(secret.repeat(1 << 20))).err(),
    ];
    // Until it is full, with keys and values of the right form.
    for number in 0..20_000u32 {
        let value = filled(&shape, secret, number);
        let (key, value) = match form {
            Form::Fixed { key_bytes, value_bytes } => {
                (value[..key_bytes as usize].to_vec(), value[..value_bytes as usize].to_vec())
            }
            Form::Variable => (value.clone(), value),
        };
        if let Err(error) = table.put(&key, &value) {
            errors.push(Some(error));
            break;
        }
    }
    let errors: Vec<Error> = errors.into_iter().flatten().collect();
    ensure!(!errors.is_empty(), "nothing went wrong");
    for error in errors {
        let (shown, debugged) = (error.to_string(), format!("{error:?}"));
        let leaks = [&shown, &debugged].iter().any(|text| {
            text.contains("SECRET") || text.contains("5345435245") || text.contains("83, 69, 67")
        });
        ensure!(!leaks, "an error shows a key or a value: {error}");
    }
    Ok(())
}

fn filled(shape: &Shape, secret: &[u8], number: u32) -> Vec<u8> {
    let length = match shape.form {
        Form::Fixed { key_bytes, value_bytes } => key_bytes.max(value_bytes) as usize,
        Form::Variable => 200,
    };
    let mut bytes: Vec<u8> = number.to_be_bytes()[1..].to_vec();
    bytes.extend(secret.iter().cycle().take(length.saturating_sub(3)));
    bytes.resize(length, 0);
    bytes
}

pub(super) fn figures_are_consistent(design: &Design<Image>, form: Form) -> Result<(), Failure> {
    let (mut session, shape) = (roomy(design, form)?, Shape::tiny(form));
    let mut pairs = Pairs::new();
    for round in 0u16..6 {
        pairs.extend(load(session.table(), &shape, round * 40..round * 40 + 40, 0)?);
        let (table, stats) = (session.table(), session.table().stats()?);
        let exact = design.capabilities.exact_len;
        ensure!(!exact || stats.items == pairs.len() as u64, "{} items", stats.items);
        ensure!(stats.items == table.len()?, "stats and len count differently");
        let bytes = session.region().media().bytes();
        ensure!(stats.device_bytes == bytes, "{} of {bytes} bytes", stats.device_bytes);
        ensure!(stats.used_bytes <= bytes, "{} used of {bytes} bytes", stats.used_bytes);
        let reachable = table.check()?.reachable_bytes;
        let used = stats.used_bytes;
        ensure!(reachable <= used, "{reachable} bytes are reachable, and only {used} in use");
        let content: usize = pairs.iter().map(|(key, value)| key.len() + value.len()).sum();
        ensure!(used >= content as u64, "{content} bytes of pairs in {used} bytes");
        let load = stats.load_factor();
        ensure!(load.is_finite() && load >= 0.0, "the load factor is {load}");
        let names: BTreeSet<_> = stats.own.iter().map(|(name, _)| *name).collect();
        ensure!(names.len() == stats.own.len(), "two figures have one name: {:?}", stats.own);
        if round == 3 {
            session.kill()?;
        }
    }
    Ok(())
}

pub(super) fn a_check_reaches_every_pair(
    design: &Design<Image>,
    form: Form,
) -> Result<(), Failure> {
    let (mut session, shape) = (roomy(design, form)?, Shape::tiny(form));
    let mut content = 0;
    for number in 0..120 {
        let key = shape.key(number);
        // So long that no room for what leads to pairs makes up for one of them.
        let value = match form {
            Form::Variable => vec![7; 1000],
            Form::Fixed { .. } => shape.value(number.into()),
        };
        session.table().put(&key, &value)?;
        content += (key.len() + value.len()) as u64;
    }
    let reaches = |checked: Checked| {
        // Without the header, in which no pair lies.
        let reached = checked.reachable_bytes.saturating_sub(pool::DATA.byte());
        ensure!(reached >= content, "{content} bytes of pairs in {reached} that are reached");
        Ok(())
    };
    reaches(session.table().check()?)?;
    session.close()?;
    reaches(design.check(session.region(), Boot::default(), &mut |_, _| {})?)
}

pub(super) fn names_and_settings_are_in_order(
    design: &Design<Image>,
    form: Form,
) -> Result<(), Failure> {
    let good =
        |name: &str| (1..=8).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_lowercase());
    ensure!(good(design.name), "'{}' is not one to eight lower-case letters", design.name);
    let sites: Vec<_> = design.sites.iter().flat_map(|sites| sites.iter()).collect();
    let distinct: BTreeSet<_> = sites.iter().map(|site| site.name()).collect();
    ensure!(distinct.len() == sites.len(), "two sites have one name");
    let stranger = distinct.iter().find(|name| !name.starts_with(design.name));
    ensure!(stranger.is_none(), "site {stranger:?} does not begin with the engine's name");
    let usual = Choice::default();
    for Setting { name, default, meaning } in design.settings {
        let value = design.setting(form, usual, name)?;
        ensure!(value == Some(*default), "the default of {name} is not {default}");
        let tiny = Choice { sizing: Sizing::Tiny, ..usual };
        let Some(value) = design.setting(form, tiny, name)? else {
            return Err(Failure::new(format!("setting {name} cannot be read")));
        };
        let again = design.setting(form, Choice { changes: &[(name, value)], ..tiny }, name)?;
        ensure!(again == Some(value), "setting {name} changes when it is set");
        let absurd = Choice { changes: &[(name, u64::MAX)], ..tiny };
        let absurd = design.setting(form, absurd, name);
        ensure!(matches!(absurd, Err(Error::Setting { .. })), "setting {name} takes 2^64 - 1");
        ensure!(!meaning.is_empty(), "setting {name} has no meaning");
    }
    let none = design.setting(form, usual, "no such setting")?;
    ensure!(none.is_none(), "a setting that is not there has a value");
    let unknown = Choice { changes: &[("no such setting", 1)], ..usual };
    let unknown = design.setting(form, unknown, "no such setting");
    ensure!(matches!(unknown, Err(Error::Setting { .. })), "an unknown setting can be set");
    let odd = Form::Fixed { key_bytes: 3, value_bytes: 5 };
    if !design.capabilities.holds(odd) {
        let refused = OpenTable::tiny(design, odd, 1 << 20).map(drop);
        let right = matches!(refused, Err(Error::Unsupported { .. }));
        ensure!(right, "a form that the engine cannot hold gave {refused:?}");
    }
    Ok(())
}
