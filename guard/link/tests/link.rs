//! What comes out of units that are linked.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../tests/ptxas/mod.rs"]
mod ptxas;

use std::collections::HashSet;

use bulkhead_link::{Error, Unit, link};
use bulkhead_ptx::ast::{Function, Item, Module};

const HEAD: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

fn text_of(units: &[&str]) -> Result<String, Error> {
    let texts: Vec<String> = units.iter().map(|unit| format!("{HEAD}{unit}")).collect();
    let names = ["a", "b", "c", "d"];
    let units: Vec<Unit<'_>> = names.iter().zip(&texts).map(|(name, text)| Unit { name, text }).collect();
    link(&units)
}

/// What is linked, without the declarations of what it defines.
fn linked(units: &[&str]) -> Result<Module, Error> {
    let mut module = bulkhead_ptx::parse(&text_of(units)?).unwrap();
    let defined: HashSet<String> =
        functions(&module).iter().filter(|f| f.body.is_some()).map(|f| f.name.clone()).collect();
    module
        .items
        .retain(|item| !matches!(item, Item::Function(f) if f.body.is_none() && defined.contains(&f.name)));
    Ok(module)
}

fn functions(module: &Module) -> Vec<&Function> {
    let function = |item: &'_ Item| matches!(item, Item::Function(_));
    let found = module.items.iter().filter(|item| function(item));
    found.filter_map(|item| if let Item::Function(function) = item { Some(function) } else { None }).collect()
}

fn names(module: &Module) -> Vec<&str> {
    module
        .items
        .iter()
        .filter_map(|item| match item {
            Item::Variable(variable) => Some(variable.name.as_str()),
            Item::Function(function) => Some(function.name.as_str()),
            Item::Section(_) | Item::Directive(_) => None,
        })
        .collect()
}

#[test]
fn a_declaration_goes_where_another_unit_has_the_definition() {
    let module = linked(&[
        ".extern .global .u32 x;\n.extern .func f();\n.visible .entry k() { call f; ret; }\n",
        ".visible .global .u32 x = 5;\n.visible .func f() { ret; }\n",
    ])
    .unwrap();
    assert_eq!(names(&module), ["x", "k", "f"]);
    assert!(functions(&module).iter().all(|function| function.body.is_some()));
}

#[test]
fn functions_that_nobody_defines_stay_declared_once() {
    let unit = ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n";
    let module = linked(&[unit, unit]).unwrap();
    assert_eq!(names(&module), ["vprintf"]);
}

#[test]
fn names_without_linkage_belong_to_their_unit() {
    let unit = |value: u32, entry: &str| {
        format!(
            ".global .u32 own = {value};\n.func helper() {{ ret; }}\n.visible .entry {entry}()\n{{\n.reg .b64 %rd<3>;\n\
             mov.u64 %rd1, own;\nld.global.u32 %rd2, [own+4];\ncall helper;\nret;\n}}\n"
        )
    };
    let module = linked(&[&unit(1, "first"), &unit(2, "second")]).unwrap();
    let all = names(&module);
    let unique: std::collections::BTreeSet<&str> = all.iter().copied().collect();
    assert_eq!((all.len(), unique.len()), (6, 6), "{all:?}");
    assert!(all.contains(&"own") && all.contains(&"helper"));
    let second = functions(&module).into_iter().find(|function| function.name == "second").unwrap();
    let body = format!("{:?}", second.body);
    assert!(!body.contains("\"own\"") && !body.contains("\"helper\""), "{body}");
    assert!(body.contains("own__unit1_0") && body.contains("helper__unit1_0"), "{body}");
}

#[test]
fn what_a_function_declares_itself_hides_a_name_that_is_renamed() {
    let first = ".global .u32 own;\n.visible .entry first() { ret; }\n";
    let second = ".global .u32 own;\n.visible .entry second(.param .u32 own)\n{\n.reg .b32 %r<2>;\n\
                  ld.param.u32 %r1, [own];\n{\n.reg .b32 %r<2>;\n.shared .u32 x;\nld.shared.u32 %r1, [x];\n}\nret;\n}\n";
    let module = linked(&[first, second]).unwrap();
    let entry = functions(&module).into_iter().find(|function| function.name == "second").unwrap();
    assert!(format!("{:?}", entry.body).contains("\"own\""));
}

#[test]
fn a_weak_function_stays_once_and_gives_way_to_a_visible_one() {
    let weak = ".weak .func f() { ret; }\n";
    let strong = ".visible .func f() { bar.sync 0; ret; }\n";
    assert_eq!(names(&linked(&[weak, weak, weak]).unwrap()), ["f"]);
    for units in [[weak, strong], [strong, weak]] {
        let module = linked(&units).unwrap();
        let found = functions(&module);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].body.as_ref().unwrap().len(), 2);
    }
}

#[test]
fn common_variables_are_one_as_large_as_the_largest() {
    let module = linked(&[".common .global .b8 c[4];\n", ".common .global .b8 c[16];\n"]).unwrap();
    let Some(Item::Variable(variable)) = module.items.first() else { panic!("{module:?}") };
    assert_eq!((module.items.len(), variable.dimensions.as_slice()), (1, [16].as_slice()));
}

#[test]
fn errors_name_the_units() {
    let defined = ".visible .func f() { ret; }\n";
    let twice = linked(&[defined, defined]).unwrap_err();
    assert_eq!(twice.to_string(), "multiple definition of `f` in a and b");
    let undefined = linked(&["", ".extern .global .u32 nowhere;\n"]).unwrap_err();
    assert_eq!(undefined.to_string(), "undefined reference to `nowhere` in b");
    let other = linked(&[defined, ".visible .global .u32 f;\n"]).unwrap_err();
    assert!(matches!(other, Error::Mismatch { .. }), "{other}");
    let broken = linked(&[defined, "nonsense\n"]).unwrap_err();
    assert!(broken.to_string().starts_with("b is not PTX"), "{broken}");
    assert_eq!(link(&[]), Err(Error::Empty));
}

#[test]
fn dynamic_shared_memory_is_nobodys_definition() {
    let unit = ".extern .shared .align 16 .b8 dynamic[];\n";
    assert_eq!(names(&linked(&[unit, unit]).unwrap()), ["dynamic"]);
}

#[test]
fn the_newest_version_and_architecture_of_the_units_is_that_of_all() {
    let units = [
        Unit { name: "a", text: ".version 8.0\n.target sm_75\n.address_size 64\n" },
        Unit { name: "b", text: ".version 8.3\n.target sm_90\n.address_size 64\n" },
        Unit { name: "c", text: ".version 7.8\n.target sm_80, texmode_independent\n.address_size 64\n" },
    ];
    let module = bulkhead_ptx::parse(&link(&units).unwrap()).unwrap();
    assert_eq!(module.version, (8, 3));
    assert_eq!(module.target, ["sm_90", "texmode_independent"]);
}

#[test]
fn lines_name_the_file_of_their_unit() {
    let unit = |name: &str| {
        format!(".visible .entry {name}()\n{{\n.loc 1 7 5\nret;\n}}\n.file 1 \"/src/{name}.cu\"\n")
    };
    let module = linked(&[&unit("first"), &unit("second")]).unwrap();
    let text = bulkhead_ptx::print(&module);
    assert!(text.contains(".file 2 \"/src/second.cu\"") && text.contains(".loc 2 7 5"), "{text}");
    assert!(text.contains(".file 1 \"/src/first.cu\"") && text.contains(".loc 1 7 5"), "{text}");
}

#[test]
fn a_single_unit_is_left_as_it_is() {
    let text = "whatever it is";
    assert_eq!(link(&[Unit { name: "a", text }]).unwrap(), text);
}

#[test]
fn what_is_linked_assembles_though_units_use_what_others_define_later() {
    let first = ".extern .func (.param .b32 r) later(.param .b32 a);\n.visible .entry k(.param .u64 p)\n{\n.reg .b64 %rd<2>;\n\
                 .reg .b32 %r<2>;\n.param .b32 a;\n.param .b32 r;\nld.param.u64 %rd1, [p];\nmov.b32 %r1, 1;\nst.param.b32 [a], %r1;\n\
                 call.uni (r), later, (a);\nld.param.b32 %r1, [r];\nst.global.u32 [%rd1], %r1;\nret;\n}\n";
    let second = ".func (.param .b32 r) own(.param .b32 a)\n{\n.reg .b32 %r<2>;\nld.param.b32 %r1, [a];\nst.param.b32 [r], %r1;\nret;\n}\n\
                  .visible .global .align 8 .u64 pointer = own;\n.visible .func (.param .b32 r) later(.param .b32 a)\n{\n\
                  .reg .b32 %r<2>;\nld.param.b32 %r1, [a];\nadd.s32 %r1, %r1, 1;\nst.param.b32 [r], %r1;\nret;\n}\n";
    let text = text_of(&[first, second]).unwrap();
    let place = |what: &str| text.find(what).unwrap();
    assert!(place("own(") < place("pointer ="), "{text}");
    let Some(ptxas) = ptxas::find() else {
        println!("skipped: no ptxas (set BULKHEAD_PTXAS, or install the compiler into .toolchain)");
        return;
    };
    if let Err(error) = ptxas::assemble(&ptxas, &text) {
        panic!("{error}\n{text}");
    }
}
