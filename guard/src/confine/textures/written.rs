//! The text of the functions that textures and surfaces are read and written by.

use super::{AXES, Action, MODE_BITS, Shape, Surface};

/// A function's text.
pub(crate) fn written(name: &str, action: Action) -> String {
    match action {
        Action::Extent(axis) => format!(
            ".func (.param .b32 result) {name}(.param .b64 a0)\n{{\n.reg .b64 %h;\n.reg .b32 %n;\n\
             ld.param.b64 %h, [a0];\nld.global.u32 %n, [%h+{}];\nst.param.b32 [result], %n;\nret;\n}}\n",
            16 + 4 * axis
        ),
        Action::Sample { shape, whole } => sample(name, shape, whole),
        Action::Surface(access) => surface(name, access),
    }
}

/// The first lines of a function: its parameters, and registers that hold the coordinates and the layer.
pub(crate) fn begin(result: &str, name: &str, coordinates: usize, layered: bool, more: &[String]) -> String {
    let count = 1 + coordinates + usize::from(layered);
    let list = (0..count).map(|at| format!(".param .b{} a{at}", if at == 0 { 64 } else { 32 }));
    let more = more.iter().zip(count..).map(|(ty, at)| format!(".param .{ty} a{at}"));
    let list = list.chain(more).collect::<Vec<_>>().join(", ");
    let mut text = format!(".func {result}{name}({list})\n{{\n");
    text.push_str(
        ".reg .b64 %h, %base, %row, %slice, %at, %o;\n.reg .b32 %n<3>, %c<3>, %i<3>, %j<3>, %f<3>, %mode, \
         %format, %layers, %layer;\n.reg .pred %out, %p, %q;\nld.param.b64 %h, [a0];\n\
         ld.global.v2.u64 {%base, %row}, [%h];\nld.global.v4.u32 {%n0, %n1, %n2, %mode}, [%h+16];\n\
         ld.global.u64 %slice, [%h+32];\nld.global.v2.u32 {%format, %layers}, [%h+40];\n",
    );
    for at in 0..coordinates {
        text += &format!("ld.param.b32 %c{at}, [a{}];\n", at + 1);
    }
    if layered {
        text += &format!("ld.param.b32 %layer, [a{}];\n", coordinates + 1);
    }
    text
}

/// Writes the texels around a place, mixed.
pub(crate) fn sample(name: &str, shape: Shape, whole: bool) -> String {
    let mut text = begin("(.param .align 16 .b8 result[16]) ", name, shape.coordinates(), shape.layered, &[]);
    text.push_str(
        ".reg .b32 %w<4>, %v<4>, %s<4>, %r<4>, %bits, %kind, %tap, %weight, %share, %size, %scale;\n\
         .reg .b32 %u, %t, %floor, %half;\n.reg .b16 %narrow;\n.reg .pred %linear, %normal, %wraps, %mirrors;\n\
         .reg .pred %outside, %raw, %b8, %b16;\n\
         and.b32 %t, %mode, 256;\nsetp.ne.u32 %linear, %t, 0;\nand.b32 %t, %mode, 512;\nsetp.ne.u32 %normal, %t, 0;\n",
    );
    if shape.layered {
        let faces = if shape.cube { 6 } else { 1 };
        text += &format!(
            "mul.lo.s32 %layer, %layer, {faces};\nsub.s32 %t, %layers, {faces};\nmin.s32 %layer, %layer, %t;\n\
             max.s32 %layer, %layer, 0;\n"
        );
    }
    if shape.cube {
        text.push_str(FACES);
        text.push_str(if shape.layered { "add.u32 %layer, %layer, %t;\n" } else { "mov.u32 %layer, %t;\n" });
    }
    for axis in 0..shape.axes {
        text += &format!("bfe.u32 %f{axis}, %mode, {}, {MODE_BITS};\n", axis * MODE_BITS);
        text += &along(axis, whole);
    }
    text.push_str(
        "mov.u32 %tap, 0;\nmov.b32 %r0, 0;\nmov.b32 %r1, 0;\nmov.b32 %r2, 0;\n\
         mov.b32 %r3, 0;\nand.b32 %bits, %format, 255;\nbfe.u32 %kind, %format, 8, 8;\nbfe.u32 %size, %format, 16, 8;\n\
         setp.eq.u32 %b8, %bits, 8;\nsetp.eq.u32 %b16, %bits, 16;\nsetp.eq.u32 %raw, %kind, 0;\nTAP:\n\
         mov.b32 %weight, 0f3F800000;\nmov.u64 %at, %base;\nsetp.ne.u32 %outside, %mode, %mode;\n",
    );
    if shape.layered || shape.cube {
        text.push_str("mul.wide.u32 %o, %layer, 1;\nmul.lo.u64 %o, %o, %slice;\nadd.s64 %at, %at, %o;\n");
    }
    for axis in 0..shape.axes {
        text += &neighbour(axis);
    }
    text.push_str(TEXEL);
    text + &format!(
        "setp.lt.u32 %p, %tap, {};\n@%p bra TAP;\nDONE:\nst.param.v4.b32 [result], {{%r0, %r1, %r2, %r3}};\n\
         ret;\n}}\n",
        1 << shape.axes
    )
}

/// The first texel along an axis, and how much of the second is mixed in, in 256 parts: `%i`, `%s`.
pub(crate) fn along(axis: usize, whole: bool) -> String {
    if whole {
        return format!("mov.u32 %i{axis}, %c{axis};\nmov.u32 %s{axis}, 0;\n");
    }
    format!(
        "// From 0 to 1 and around, or there and back.\n\
         mov.b32 %u, %c{axis};\nsetp.eq.and.u32 %wraps, %f{axis}, 0, %normal;\nsetp.eq.and.u32 %mirrors, %f{axis}, 2, %normal;\n\
         cvt.rmi.f32.f32 %floor, %u;\n@%wraps sub.f32 %u, %u, %floor;\n\
         mul.f32 %half, %c{axis}, 0f3F000000;\ncvt.rmi.f32.f32 %half, %half;\nfma.rn.f32 %half, %half, 0fC0000000, %c{axis};\n\
         sub.f32 %half, 0f3F800000, %half;\nabs.f32 %half, %half;\nsub.f32 %half, 0f3F800000, %half;\n\
         @%mirrors mov.b32 %u, %half;\n\
         cvt.rn.f32.u32 %half, %n{axis};\n@%normal mul.f32 %u, %u, %half;\n\
         // Texels lie around their middles.\n\
         @%linear sub.f32 %u, %u, 0f3F000000;\n\
         max.f32 %u, %u, 0fC0000000;\nadd.f32 %half, %half, 0f40000000;\nmin.f32 %u, %u, %half;\n\
         mul.f32 %half, %u, 0f43800000;\ncvt.rni.s32.f32 %t, %half;\nand.b32 %s{axis}, %t, 255;\nshr.s32 %i{axis}, %t, 8;\n\
         @!%linear mov.u32 %s{axis}, 0;\n@!%linear cvt.rmi.s32.f32 %i{axis}, %u;\n"
    )
}

/// Where the texel of a turn is along an axis: `%at` and `%weight`, and whether it is outside.
pub(crate) fn neighbour(axis: usize) -> String {
    let step = match axis {
        0 => "mul.wide.s32 %o, %j0, %size;\n".to_owned(),
        1 => "cvt.s64.s32 %o, %j1;\nmul.lo.s64 %o, %o, %row;\n".to_owned(),
        _ => "cvt.s64.s32 %o, %j2;\nmul.lo.s64 %o, %o, %slice;\n".to_owned(),
    };
    format!(
        "bfe.u32 %t, %tap, {axis}, 1;\nadd.s32 %j{axis}, %i{axis}, %t;\nsetp.eq.u32 %p, %t, 0;\n\
         sub.s32 %t, 256, %s{axis};\nselp.b32 %t, %t, %s{axis}, %p;\ncvt.rn.f32.u32 %share, %t;\n\
         mul.f32 %share, %share, 0f3B800000;\nmul.f32 %weight, %weight, %share;\n\
         setp.eq.u32 %p, %f{axis}, 0;\nsetp.lt.and.s32 %q, %j{axis}, 0, %p;\n@%q add.s32 %j{axis}, %j{axis}, %n{axis};\n\
         setp.ge.and.s32 %q, %j{axis}, %n{axis}, %p;\n@%q sub.s32 %j{axis}, %j{axis}, %n{axis};\n\
         setp.eq.u32 %p, %f{axis}, 3;\nsetp.ge.and.u32 %q, %j{axis}, %n{axis}, %p;\nor.pred %outside, %outside, %q;\n\
         max.s32 %j{axis}, %j{axis}, 0;\nsub.s32 %t, %n{axis}, 1;\nmin.s32 %j{axis}, %j{axis}, %t;\n\
         {step}add.s64 %at, %at, %o;\n"
    )
}

/// Loads the texel at `%at`, turns it into what the instruction gives, and adds it to `%r`.
pub(crate) const TEXEL: &str = "mov.b32 %w0, 0;
mov.b32 %w1, 0;
mov.b32 %w2, 0;
mov.b32 %w3, 0;
setp.eq.u32 %p, %size, 1;
@%p ld.global.u8 %w0, [%at];
setp.eq.u32 %p, %size, 2;
@%p ld.global.u16 %w0, [%at];
setp.eq.u32 %p, %size, 4;
@%p ld.global.u32 %w0, [%at];
setp.eq.u32 %p, %size, 8;
@%p ld.global.v2.u32 {%w0, %w1}, [%at];
setp.eq.u32 %p, %size, 16;
@%p ld.global.v4.u32 {%w0, %w1, %w2, %w3}, [%at];
@%b8 bfe.u32 %w3, %w0, 24, 8;
@%b8 bfe.u32 %w2, %w0, 16, 8;
@%b8 bfe.u32 %w1, %w0, 8, 8;
@%b8 and.b32 %w0, %w0, 255;
@%b16 shr.u32 %w3, %w1, 16;
@%b16 and.b32 %w2, %w1, 65535;
@%b16 shr.u32 %w1, %w0, 16;
@%b16 and.b32 %w0, %w0, 65535;
@%raw bra READ;
setp.eq.u32 %p, %kind, 4;
@%p bra HALVES;
setp.eq.u32 %p, %kind, 2;
@%p bra PARTS;
bfe.s32 %w0, %w0, 0, %bits;
bfe.s32 %w1, %w1, 0, %bits;
bfe.s32 %w2, %w2, 0, %bits;
bfe.s32 %w3, %w3, 0, %bits;
setp.eq.u32 %p, %kind, 1;
@%p bra READ;
selp.b32 %scale, 0f3C010204, 0f38000100, %b8;
cvt.rn.f32.s32 %w0, %w0;
cvt.rn.f32.s32 %w1, %w1;
cvt.rn.f32.s32 %w2, %w2;
cvt.rn.f32.s32 %w3, %w3;
mul.f32 %w0, %w0, %scale;
mul.f32 %w1, %w1, %scale;
mul.f32 %w2, %w2, %scale;
mul.f32 %w3, %w3, %scale;
max.f32 %w0, %w0, 0fBF800000;
max.f32 %w1, %w1, 0fBF800000;
max.f32 %w2, %w2, 0fBF800000;
max.f32 %w3, %w3, 0fBF800000;
bra READ;
PARTS:
selp.b32 %scale, 0f3B808081, 0f37800080, %b8;
cvt.rn.f32.u32 %w0, %w0;
cvt.rn.f32.u32 %w1, %w1;
cvt.rn.f32.u32 %w2, %w2;
cvt.rn.f32.u32 %w3, %w3;
mul.f32 %w0, %w0, %scale;
mul.f32 %w1, %w1, %scale;
mul.f32 %w2, %w2, %scale;
mul.f32 %w3, %w3, %scale;
bra READ;
HALVES:
cvt.u16.u32 %narrow, %w0;
cvt.f32.f16 %w0, %narrow;
cvt.u16.u32 %narrow, %w1;
cvt.f32.f16 %w1, %narrow;
cvt.u16.u32 %narrow, %w2;
cvt.f32.f16 %w2, %narrow;
cvt.u16.u32 %narrow, %w3;
cvt.f32.f16 %w3, %narrow;
READ:
@%outside ld.global.v4.u32 {%w0, %w1, %w2, %w3}, [%h+48];
@%linear bra MIX;
mov.b32 %r0, %w0;
mov.b32 %r1, %w1;
mov.b32 %r2, %w2;
mov.b32 %r3, %w3;
bra DONE;
MIX:
fma.rn.f32 %r0, %w0, %weight, %r0;
fma.rn.f32 %r1, %w1, %weight, %r1;
fma.rn.f32 %r2, %w2, %weight, %r2;
fma.rn.f32 %r3, %w3, %weight, %r3;
add.u32 %tap, %tap, 1;
";

/// The face that a direction meets, as `%layer`, and where, from 0 to 1: `%c0`, `%c1`.
pub(crate) const FACES: &str = ".reg .b32 %ax, %ay, %az, %major, %sc, %tc, %minus;
.reg .pred %isx, %isy, %isz;
abs.f32 %ax, %c0;
abs.f32 %ay, %c1;
abs.f32 %az, %c2;
setp.ge.f32 %isx, %ax, %ay;
setp.ge.and.f32 %isx, %ax, %az, %isx;
setp.ge.f32 %isy, %ay, %az;
not.pred %p, %isx;
and.pred %isy, %isy, %p;
selp.b32 %major, %ay, %az, %isy;
selp.b32 %major, %ax, %major, %isx;
selp.b32 %u, %c1, %c2, %isy;
selp.b32 %u, %c0, %u, %isx;
setp.lt.f32 %q, %u, 0f00000000;
selp.b32 %t, 2, 4, %isy;
selp.b32 %t, 0, %t, %isx;
@%q add.u32 %t, %t, 1;
mov.u32 %f0, 0;
neg.f32 %minus, %c2;
selp.b32 %sc, %c2, %minus, %q;
neg.f32 %minus, %c0;
selp.b32 %half, %minus, %c0, %q;
@!%isx mov.b32 %sc, %half;
@%isy mov.b32 %sc, %c0;
neg.f32 %tc, %c1;
neg.f32 %minus, %c2;
selp.b32 %half, %minus, %c2, %q;
@%isy mov.b32 %tc, %half;
div.rn.f32 %sc, %sc, %major;
div.rn.f32 %tc, %tc, %major;
fma.rn.f32 %c0, %sc, 0f3F000000, 0f3F000000;
fma.rn.f32 %c1, %tc, 0f3F000000, 0f3F000000;
";

/// Loads or stores bytes of a surface. Outside of it a load gives zeros and a store does nothing, or both are done at the
/// last place.
pub(crate) fn surface(name: &str, access: Surface) -> String {
    let Surface { shape, stores, words, bits, last } = access;
    let own = bits.max(16);
    let ty = format!("b{own}");
    let more = if stores { vec![ty.clone(); words as usize] } else { Vec::new() };
    let bytes = words * own / 8;
    let result = if stores { String::new() } else { format!("(.param .align 16 .b8 result[{bytes}]) ") };
    let mut text = begin(&result, name, shape.axes, shape.layered, &more);
    let values: Vec<String> = (0..words).map(|at| format!("%d{at}")).collect();
    text +=
        &format!(".reg .{ty} {};\nsetp.ne.u32 %out, %mode, %mode;\nmov.u64 %at, %base;\n", values.join(", "));
    let size = words * bits / 8;
    let first = 1 + shape.axes + usize::from(shape.layered);
    for (at, value) in values.iter().enumerate() {
        text += &if stores {
            format!("ld.param.{ty} {value}, [a{}];\n", first + at)
        } else {
            format!("mov.{ty} {value}, 0;\n")
        };
    }
    let mut places: Vec<(String, String, &str)> =
        (0..shape.axes).map(|axis| (format!("%c{axis}"), format!("%n{axis}"), AXES[axis])).collect();
    if shape.layered {
        places.push(("%layer".to_owned(), "%layers".to_owned(), "layer"));
    }
    for (place, count, axis) in places {
        // The last place at which an access begins.
        text += &format!("sub.s32 %i0, {count}, {};\n", if axis == "x" { size } else { 1 });
        text += &if last {
            format!("max.s32 {place}, {place}, 0;\nmin.s32 {place}, {place}, %i0;\n")
        } else {
            format!(
                "setp.gt.u32 %p, {place}, %i0;\nor.pred %out, %out, %p;\nsetp.lt.s32 %p, %i0, 0;\nor.pred %out, %out, %p;\n"
            )
        };
        text += &match axis {
            "x" => format!("cvt.s64.s32 %o, {place};\nadd.s64 %at, %at, %o;\n"),
            "y" => format!("cvt.s64.s32 %o, {place};\nmul.lo.s64 %o, %o, %row;\nadd.s64 %at, %at, %o;\n"),
            _ => format!("cvt.s64.s32 %o, {place};\nmul.lo.s64 %o, %o, %slice;\nadd.s64 %at, %at, %o;\n"),
        };
    }
    let list = if words == 1 { values[0].clone() } else { format!("{{{}}}", values.join(", ")) };
    let vector = if words == 1 { String::new() } else { format!(".v{words}") };
    text.push_str("@%out bra DONE;\n");
    let unsigned = if bits == 8 { "u8".to_owned() } else { format!("b{bits}") };
    text += &if stores {
        format!("st.global{vector}.{unsigned} [%at], {list};\nDONE:\n")
    } else {
        format!("ld.global{vector}.{unsigned} {list}, [%at];\nDONE:\n")
    };
    if !stores {
        for (at, value) in (0..).zip(&values) {
            text += &format!("st.param.{ty} [result+{}], {value};\n", at * own / 8);
        }
    }
    text + "ret;\n}\n"
}
