//! INCREX: adds to the number that a key holds, within bounds, and sets or removes its lease.
//!
//! Rule    a result out of bounds changes nothing, unless it is to be the bound itself. BYFLOAT computes with `f64`, where
//!         Redis has 80 bits.
//! Source  Redis 8.8: its documentation, and its own tests for errors and events. Valkey 9.2 has NX and XX, too, which are
//!         refused here as in Redis.

use redlatch_proto::error::Refusal;
use redlatch_proto::number;
use redlatch_proto::number::double;
use redlatch_proto::resp::Reply;

use crate::commands::args::{self, Args};
use crate::commands::expiry::{self, LeaseOption, NEW_LEASE};
use crate::commands::row::{self, Flags, Group, Row, integer, key, one_of, text, token};
use crate::commands::{Call, Outcome};
use crate::keyspace::{Entry, Form, Lease};

pub(in crate::commands) const ROWS: &[Row] = &[Row::new(Group::String, "INCREX", "8.8.0", increx)
    .summary("Adds to the number that a key holds, within bounds, and sets or removes its lease (Redis 8.8).")
    .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST))
    .args(&[
        key("key"),
        one_of("increment", &[row::double("float").after("BYFLOAT"), integer("integer").after("BYINT")])
            .maybe(),
        text("lowerbound").after("LBOUND").maybe(),
        text("upperbound").after("UBOUND").maybe(),
        token("saturate", "SATURATE").maybe(),
        NEW_LEASE.maybe(),
        token("enx", "ENX").maybe(),
    ])];

/// The words behind the key. Their numbers are not parsed yet.
struct Options<'a> {
    by_integer: Option<&'a [u8]>,
    by_float: Option<&'a [u8]>,
    lower: Option<&'a [u8]>,
    upper: Option<&'a [u8]>,
    /// Whether a result out of bounds becomes the bound.
    saturates: bool,
    lease: LeaseOption<'a>,
    /// Whether a lease that the key has stays.
    keeps_lease: bool,
}

/// The increment, and the bounds of the result.
#[derive(Clone, Copy)]
struct Step<N> {
    by: N,
    lower: N,
    upper: N,
}

/// What has become of a number, and how much was added. Nothing is stored if the result was out of bounds.
struct Sum<N> {
    value: N,
    added: N,
    is_stored: bool,
}

/// A number as it is stored, published and answered.
trait Number: Copy {
    const EVENT: &'static str;
    const FORM: Form;

    fn text(self) -> String;
    fn answer(self, reply: &mut Reply<'_>);
}

impl Number for i64 {
    const EVENT: &'static str = "incrby";
    const FORM: Form = Form::Whole;

    fn text(self) -> String {
        self.to_string()
    }

    fn answer(self, reply: &mut Reply<'_>) {
        reply.integer(self);
    }
}

impl Number for f64 {
    const EVENT: &'static str = "incrbyfloat";
    const FORM: Form = Form::Computed;

    fn text(self) -> String {
        number::float_text(self)
    }

    fn answer(self, reply: &mut Reply<'_>) {
        reply.double_text(self.text().as_bytes());
    }
}

fn increx(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let options = Options::read(&mut call.args)?;
    if let Some(by) = options.by_float {
        let step = Step::of_floats(by, &options)?;
        return apply(call, name, &options, |old| step.add(old, options.saturates));
    }
    let step = Step::of_integers(&options)?;
    apply(call, name, &options, |old| step.add(old, options.saturates))
}

/// Replaces the number under the key by the sum that `add` makes of it, and answers.
fn apply<N: Number>(
    call: &mut Call<'_, '_>,
    name: &[u8],
    options: &Options<'_>,
    add: impl FnOnce(Option<&[u8]>) -> Result<Sum<N>, Refusal>,
) -> Result<Outcome, Refusal> {
    let lease = match options.lease {
        LeaseOption::Until(unit, number) => Lease::Until(expiry::lease(unit, number, call.now, "increx")?),
        LeaseOption::Persist => Lease::Never,
        LeaseOption::Absent | LeaseOption::Keep => Lease::Keep,
    };

    let entry = call.view.entry(name);
    let sum = add(entry.string()?)?;
    let has_lease = matches!(&entry, Entry::Occupied(found) if found.deadline().is_some());
    let lease = if options.keeps_lease && has_lease { Lease::Keep } else { lease };
    let is_over = matches!(lease, Lease::Until(deadline) if deadline.time() <= call.now.lock);
    match entry {
        _ if !sum.is_stored => {}
        Entry::Vacant(_) if is_over => {}
        Entry::Occupied(mut found) if is_over => {
            found.event(b'g', "del");
            found.remove_entry();
        }
        entry => {
            let mut counter = entry.put(sum.value.text().as_bytes(), lease);
            counter.set_form(N::FORM);
            counter.mark_counter();
            call.view.event(b'$', N::EVENT, name);
            match lease {
                Lease::Until(_) => call.view.event(b'g', "expire", name),
                Lease::Never if has_lease => call.view.event(b'g', "persist", name),
                Lease::Never | Lease::Keep => {}
            }
        }
    }

    call.reply.array(2);
    sum.value.answer(&mut call.reply);
    sum.added.answer(&mut call.reply);
    Ok(Outcome::Replied)
}

impl<'a> Options<'a> {
    /// Reads all words. Unlike those of SET, none may come twice.
    fn read(args: &mut Args<'a>) -> Result<Self, Refusal> {
        let mut options = Self {
            by_integer: None,
            by_float: None,
            lower: None,
            upper: None,
            saturates: false,
            lease: LeaseOption::Absent,
            keeps_lease: false,
        };
        while let Some(word) = args.maybe_word() {
            options.take(word, args)?;
        }
        let sets_lease = matches!(options.lease, LeaseOption::Until(..));
        match options {
            Self { by_integer: Some(_), by_float: Some(_), .. } => Err(Refusal::Syntax),
            Self { keeps_lease: true, lease: LeaseOption::Persist, .. } => Err(Refusal::Syntax),
            Self { keeps_lease: true, .. } if !sets_lease => {
                Err(Refusal::said("ERR ENX flag requires an expiration"))
            }
            options => Ok(options),
        }
    }

    fn take(&mut self, word: &[u8], args: &mut Args<'a>) -> Result<(), Refusal> {
        let mut number =
            |to: &mut Option<&'a [u8]>| -> Result<bool, Refusal> { Ok(to.replace(args.word()?).is_none()) };
        let is_new = match word.to_ascii_uppercase().as_slice() {
            b"BYINT" => number(&mut self.by_integer)?,
            b"BYFLOAT" => number(&mut self.by_float)?,
            b"LBOUND" => number(&mut self.lower)?,
            b"UBOUND" => number(&mut self.upper)?,
            b"SATURATE" => !std::mem::replace(&mut self.saturates, true),
            b"ENX" => !std::mem::replace(&mut self.keeps_lease, true),
            b"KEEPTTL" => false,
            _ => self.lease == LeaseOption::Absent && self.lease.take(args::option(word), args)?,
        };
        if is_new { Ok(()) } else { Err(Refusal::Syntax) }
    }
}

impl<N: PartialOrd> Step<N> {
    fn checked(self) -> Result<Self, Refusal> {
        let is_empty = self.lower > self.upper;
        if is_empty { Err(Refusal::said("ERR LBOUND can't be greater than UBOUND")) } else { Ok(self) }
    }
}

impl Step<i64> {
    fn of_integers(options: &Options<'_>) -> Result<Self, Refusal> {
        let parse = |word: Option<&[u8]>, name: &str, absent| {
            let unfit = || Refusal::said(format!("ERR {name} is not an integer or out of range"));
            word.map_or(Ok(absent), |word| number::integer(word).ok_or_else(unfit))
        };
        let by = parse(options.by_integer, "Increment", 1)?;
        let lower = parse(options.lower, "LBOUND", i64::MIN)?;
        let upper = parse(options.upper, "UBOUND", i64::MAX)?;
        Self { by, lower, upper }.checked()
    }

    fn add(self, old: Option<&[u8]>, saturates: bool) -> Result<Sum<i64>, Refusal> {
        let old = old.map_or(Ok(0), |text| number::integer(text).ok_or(Refusal::NotAnInteger))?;
        let sum = i128::from(old).saturating_add(self.by.into());
        let nearest = sum.clamp(self.lower.into(), self.upper.into());
        if nearest != sum && !saturates {
            return Ok(Sum { value: old, added: 0, is_stored: false });
        }
        let value = i64::try_from(nearest).expect("the bounds have 64 bits");
        let added = value.checked_sub(old);
        let added = added.ok_or_else(|| Refusal::said("ERR applied increment would overflow"))?;
        Ok(Sum { value, added, is_stored: true })
    }
}

impl Step<f64> {
    fn of_floats(by: &[u8], options: &Options<'_>) -> Result<Self, Refusal> {
        let parse = |word: &[u8], name: &str| {
            double::parse(word).ok_or_else(|| Refusal::said(format!("ERR {name} is not a valid float")))
        };
        let by = parse(by, "Increment")?;
        if by.is_infinite() {
            return Err(Refusal::said("ERR BYFLOAT increment cannot be Infinity"));
        }
        let lower = options.lower.map_or(Ok(f64::MIN), |word| parse(word, "LBOUND"))?;
        let upper = options.upper.map_or(Ok(f64::MAX), |word| parse(word, "UBOUND"))?;
        Self { by, lower, upper }.checked()
    }

    fn add(self, old: Option<&[u8]>, saturates: bool) -> Result<Sum<f64>, Refusal> {
        let old = old.map_or(Ok(0.0), |text| double::parse(text).ok_or(Refusal::NotAFloat))?;
        if old.is_infinite() {
            return Err(Refusal::said("ERR value cannot be Infinity"));
        }
        let sum = old + self.by;
        let is_within = sum.is_finite() && (self.lower..=self.upper).contains(&sum);
        if !is_within && !saturates {
            return Ok(Sum { value: old, added: 0.0, is_stored: false });
        }
        // What was asked for, where it was added: the difference of two sums may be another number.
        let value = sum.clamp(self.lower, self.upper);
        let added = if is_within { self.by } else { value - old };
        if !added.is_finite() {
            return Err(Refusal::said("ERR applied increment would be Infinity"));
        }
        Ok(Sum { value, added, is_stored: true })
    }
}
