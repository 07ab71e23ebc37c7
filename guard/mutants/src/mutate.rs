//! A crate's sources with all mutants in them at once: which of them is at work is decided when a test runs.
//!
//! Each mutant changes one decision: a condition always or never holds, a comparison takes its bound in or leaves it out, a
//! statement is left out, a function says yes, no or nothing without looking. `const` code stays as it is: it cannot ask
//! which mutant is at work.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{
    Attribute, BinOp, Block, Expr, ExprBinary, ImplItemFn, Item, ItemFn, ReturnType, Signature, Stmt, Type,
    parse_quote,
};

/// What one mutant changes.
pub(crate) struct Mutant {
    /// From the crate's folder.
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) what: String,
    /// The line as it stands there.
    pub(crate) source: String,
}

/// Methods that take a closure which answers yes or no.
const ASKERS: &[&str] = &[
    "all",
    "any",
    "filter",
    "find",
    "is_none_or",
    "is_ok_and",
    "is_some_and",
    "position",
    "retain",
    "skip_while",
    "take_while",
];

/// Methods that answer yes or no.
const ANSWERERS: &[&str] = &[
    "contains",
    "contains_key",
    "is_empty",
    "is_none",
    "is_none_or",
    "is_ok_and",
    "is_some",
    "is_some_and",
    "starts_with",
];

struct Mutator<'a> {
    file: &'a str,
    lines: Vec<&'a str>,
    found: &'a mut Vec<Mutant>,
}

/// A file with its mutants, which are added to those that were found before; a mutant's number is its place among them.
pub(crate) fn file(name: &str, text: &str, found: &mut Vec<Mutant>) -> Result<String, syn::Error> {
    let mut syntax = syn::parse_file(text)?;
    Mutator { file: name, lines: text.lines().collect(), found }.visit_file_mut(&mut syntax);
    Ok(syntax.into_token_stream().to_string())
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let told = attribute.to_token_stream().to_string();
        attribute.path().is_ident("test") || (attribute.path().is_ident("cfg") && told.contains("test"))
    })
}

fn is_let(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(ExprBinary { left, op: BinOp::And(_), right, .. }) => is_let(left) || is_let(right),
        _ => false,
    }
}

/// Whether it can only be true or false.
fn is_answer(expression: &Expr) -> bool {
    match expression {
        Expr::Binary(binary) => {
            is_comparison(&binary.op) || matches!(binary.op, BinOp::And(_) | BinOp::Or(_))
        }
        Expr::Macro(call) => call.mac.path.is_ident("matches"),
        // `all` of a type of ours may be anything.
        Expr::MethodCall(call) if matches!(call.args.first(), Some(Expr::Closure(_))) => {
            ASKERS[..2].iter().any(|name| call.method == name)
        }
        Expr::MethodCall(call) => ANSWERERS.iter().any(|name| call.method == name),
        Expr::Paren(inner) => is_answer(&inner.expr),
        Expr::Unary(unary) => matches!(unary.op, syn::UnOp::Not(_)) && is_answer(&unary.expr),
        _ => false,
    }
}

fn is_comparison(op: &BinOp) -> bool {
    matches!(op, BinOp::Lt(_) | BinOp::Le(_) | BinOp::Gt(_) | BinOp::Ge(_) | BinOp::Eq(_) | BinOp::Ne(_))
}

/// Where what is to be changed of an expression stands: what is changed inside it has no place any more.
fn places(expression: &Expr) -> Vec<Span> {
    match expression {
        Expr::If(whole) => vec![whole.cond.span()],
        Expr::While(whole) => vec![whole.cond.span()],
        Expr::Binary(binary) => vec![binary.left.span(), binary.right.span()],
        Expr::MethodCall(call) => match call.args.first() {
            Some(Expr::Closure(closure)) => vec![closure.body.span()],
            _ => Vec::new(),
        },
        Expr::Match(whole) => whole
            .arms
            .iter()
            .map(|arm| arm.guard.as_ref().map_or_else(|| arm.span(), |(_, guard)| guard.span()))
            .collect(),
        _ => Vec::new(),
    }
}

impl Mutator<'_> {
    /// Whether this mutant is at work.
    fn on(&mut self, place: Span, what: &str) -> TokenStream {
        let line = place.start().line;
        let source = self.lines.get(line.saturating_sub(1)).map_or("", |line| line.trim()).to_owned();
        self.found.push(Mutant { file: self.file.to_owned(), line, what: what.to_owned(), source });
        let number = self.found.len() - 1;
        quote!(crate::mutants::on(#number))
    }

    /// One that always holds and one that never does.
    fn answer(&mut self, expression: &mut Expr, place: Span, may_always: bool) {
        // Its parts are mutants already.
        if is_let(expression) || matches!(expression, Expr::Lit(_)) {
            return;
        }
        let never = self.on(place, "never holds");
        let inner = expression.clone();
        *expression = if may_always {
            let always = self.on(place, "always holds");
            parse_quote!((#always || (!#never && (#inner))))
        } else {
            parse_quote!((!#never && (#inner)))
        };
    }

    /// The operands of `&&` and `||`, each left out.
    fn operands(&mut self, expression: &mut ExprBinary, places: &[Span]) {
        let is_and = matches!(expression.op, BinOp::And(_));
        for (operand, place) in [&mut expression.left, &mut expression.right].into_iter().zip(places) {
            let nested = matches!(&**operand, Expr::Binary(inner) if is_and == matches!(inner.op, BinOp::And(_))
                && matches!(inner.op, BinOp::And(_) | BinOp::Or(_)));
            if is_let(operand) || nested {
                continue;
            }
            let on = self
                .on(*place, if is_and { "a condition is left out" } else { "an alternative is left out" });
            let inner = operand.clone();
            **operand =
                if is_and { parse_quote!((#on || (#inner))) } else { parse_quote!((!#on && (#inner))) };
        }
    }

    /// What a function says at once.
    fn body(&mut self, signature: &Signature, block: &mut Block) {
        let ReturnType::Type(_, kind) = &signature.output else { return };
        let told = kind.to_token_stream().to_string().replace(' ', "");
        let said: &[(&str, TokenStream)] = &match &**kind {
            Type::Path(_) if told == "bool" => vec![("says yes", quote!(true)), ("says no", quote!(false))],
            Type::Path(_) if told.starts_with("Result<(),") => vec![("refuses nothing", quote!(Ok(())))],
            Type::Path(_) if told.starts_with("Option<") => vec![("says nothing", quote!(None))],
            _ => return,
        };
        for (what, value) in said {
            let on = self.on(signature.ident.span(), &format!("`{}` {what}", signature.ident));
            block.stmts.insert(0, parse_quote!(if #on { return #value; }));
        }
    }
}

impl VisitMut for Mutator<'_> {
    fn visit_item_mut(&mut self, item: &mut Item) {
        match item {
            Item::Const(_) | Item::Static(_) | Item::Macro(_) => {}
            Item::Mod(module) if is_test(&module.attrs) => {}
            Item::Impl(whole) if is_test(&whole.attrs) => {}
            _ => visit_mut::visit_item_mut(self, item),
        }
    }

    fn visit_impl_item_const_mut(&mut self, _: &mut syn::ImplItemConst) {}

    fn visit_type_mut(&mut self, _: &mut Type) {}

    fn visit_pat_mut(&mut self, _: &mut syn::Pat) {}

    fn visit_item_fn_mut(&mut self, function: &mut ItemFn) {
        if function.sig.constness.is_none() && !is_test(&function.attrs) {
            self.visit_block_mut(&mut function.block);
            self.body(&function.sig, &mut function.block);
        }
    }

    fn visit_impl_item_fn_mut(&mut self, function: &mut ImplItemFn) {
        if function.sig.constness.is_none() && !is_test(&function.attrs) {
            self.visit_block_mut(&mut function.block);
            self.body(&function.sig, &mut function.block);
        }
    }

    fn visit_expr_mut(&mut self, expression: &mut Expr) {
        let place = expression.span();
        let places = places(expression);
        // Mutants of a closure's body, or of the parts of a condition, are inside those of the whole.
        visit_mut::visit_expr_mut(self, expression);
        match expression {
            Expr::If(whole) => self.answer(&mut whole.cond, places[0], true),
            // A loop that never ends tells nothing.
            Expr::While(whole) => self.answer(&mut whole.cond, places[0], false),
            Expr::Binary(binary) if matches!(binary.op, BinOp::And(_) | BinOp::Or(_)) => {
                self.operands(binary, &places)
            }
            Expr::Binary(binary) => {
                let (other, what): (BinOp, _) = match binary.op {
                    BinOp::Lt(_) => (parse_quote!(<=), "`<=` for `<`"),
                    BinOp::Le(_) => (parse_quote!(<), "`<` for `<=`"),
                    BinOp::Gt(_) => (parse_quote!(>=), "`>=` for `>`"),
                    BinOp::Ge(_) => (parse_quote!(>), "`>` for `>=`"),
                    _ => return,
                };
                let on = self.on(place, what);
                let (left, right, op) = (&binary.left, &binary.right, &binary.op);
                *expression =
                    parse_quote!((if #on { (#left) #other (#right) } else { (#left) #op (#right) }));
            }
            Expr::MethodCall(call) if ASKERS.iter().any(|name| call.method == name) => {
                if let Some(Expr::Closure(closure)) = call.args.first_mut()
                    && !matches!(&*closure.body, Expr::Block(_) | Expr::Match(_))
                {
                    self.answer(&mut closure.body, places[0], true);
                }
            }
            Expr::Match(whole) => {
                for (arm, place) in whole.arms.iter_mut().zip(places) {
                    if let Some((_, guard)) = &mut arm.guard {
                        self.answer(guard, place, true);
                    }
                }
            }
            _ => {}
        }
    }

    fn visit_stmt_mut(&mut self, statement: &mut Stmt) {
        let place = statement.span();
        visit_mut::visit_stmt_mut(self, statement);
        match statement {
            Stmt::Expr(Expr::Try(_) | Expr::MethodCall(_) | Expr::Call(_), Some(_)) => {
                let on = self.on(place, "a call is left out");
                *statement = parse_quote!(if !#on { #statement });
            }
            Stmt::Expr(Expr::Assign(assign), Some(_)) if !matches!(&*assign.left, Expr::Path(_)) => {
                let on = self.on(place, "an assignment is left out");
                *statement = parse_quote!(if !#on { #statement });
            }
            Stmt::Expr(Expr::Binary(binary), Some(_)) if !is_comparison(&binary.op) => {
                let on = self.on(place, "a change is left out");
                *statement = parse_quote!(if !#on { #statement });
            }
            Stmt::Local(local) => {
                if let Some(init) = &mut local.init
                    && is_answer(&init.expr)
                {
                    self.answer(&mut init.expr, place, true);
                }
            }
            // What a block comes to.
            Stmt::Expr(tail, None) if is_answer(tail) && !matches!(tail, Expr::MethodCall(_)) => {
                self.answer(tail, place, true)
            }
            _ => {}
        }
    }
}
