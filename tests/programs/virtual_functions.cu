// Objects of classes with virtual functions, made by kernels; pointers to members; a dense switch.
#include "program.h"

class Shape {
public:
    __device__ virtual float area() const = 0;
    __device__ virtual int corners(int scale) const { return scale; }
    int kind = 0;
};

class Square : public Shape {
public:
    __device__ explicit Square(float side) : side(side) { kind = 1; }
    __device__ float area() const override { return side * side; }
    __device__ int corners(int scale) const override { return 4 * scale; }

private:
    float side;
};

class Circle : public Shape {
public:
    __device__ explicit Circle(float radius) : radius(radius) { kind = 2; }
    __device__ float area() const override { return 3 * radius * radius; }

private:
    float radius;
};

// Two tables in one object.
class Named {
public:
    __device__ virtual int letter() const { return 'n'; }
};
class Both : public Named, public Circle {
public:
    __device__ explicit Both(float radius) : Circle(radius) {}
    __device__ int letter() const override { return 'b'; }
    __device__ int corners(int scale) const override { return 100 * scale; }
};

struct Counter {
    int count;
    __device__ __noinline__ int up(int by) { return count += by; }
    __device__ __noinline__ int down(int by) { return count -= by; }
};

struct Seen {
    float area;
    int corners, letter, member, chosen;
};

// By a pointer of which the compiler knows nothing.
__device__ __noinline__ float measure(const Shape &shape) { return shape.area(); }

__device__ __noinline__ int choose(int which, int x) {
    switch (which) {
    case 0: return x * 3;
    case 1: return x - 7;
    case 2: return x ^ 5;
    case 3: return x / 3;
    case 4: return x % 7;
    case 5: return x << 3;
    case 6: return ~x;
    case 7: return x * x;
    case 8: return __clz(x);
    case 9: return __popc(x);
    default: return which;
    }
}

__host__ int expected(int which, int x) {
    switch (which) {
    case 0: return x * 3;
    case 1: return x - 7;
    case 2: return x ^ 5;
    case 3: return x / 3;
    case 4: return x % 7;
    case 5: return x << 3;
    case 6: return ~x;
    case 7: return x * x;
    case 8: return __builtin_clz(x);
    case 9: return __builtin_popcount(x);
    default: return which;
    }
}

__global__ void look(Seen *seen, int which) {
    const int i = threadIdx.x;
    Square square(static_cast<float>(i));
    Circle circle(static_cast<float>(i));
    Both both(static_cast<float>(i));
    const Shape *shapes[3] = {&square, &circle, &both};
    const Shape *shape = shapes[(i + which) % 3];
    const Named *named = &both;
    Counter counter = {10};
    int (Counter::*const member)(int) = i & 1 ? &Counter::up : &Counter::down;
    seen[i].area = measure(*shape);
    seen[i].corners = shape->corners(shape->kind);
    seen[i].letter = named->letter();
    seen[i].member = (counter.*member)(i);
    seen[i].chosen = choose(i % 12, i + 1);
}

int main(int argc, char **argv) {
    const Program program("virtual_functions", argc, argv);
    Seen *device, seen[32];
    CHECK(cudaMalloc(&device, sizeof seen));
    for (int which = 0; which < 3; which++) {
        look<<<1, 32>>>(device, which);
        CHECK_KERNEL();
        CHECK(cudaMemcpy(seen, device, sizeof seen, cudaMemcpyDeviceToHost));
        for (int i = 0; i < 32; i++) {
            const int kind = (i + which) % 3;
            const float area = static_cast<float>((kind == 0 ? 1 : 3) * i * i);
            const int corners = kind == 0 ? 4 : kind == 1 ? 2 : 200;
            if (seen[i].area != area || seen[i].corners != corners) {
                Program::fail("[%d]: %f, %d, not %f, %d", i, seen[i].area, seen[i].corners, area, corners);
            }
            if (seen[i].letter != 'b' || seen[i].member != (i & 1 ? 10 + i : 10 - i)) {
                Program::fail("[%d]: %c, %d", i, seen[i].letter, seen[i].member);
            }
            if (seen[i].chosen != expected(i % 12, i + 1)) Program::fail("[%d]: chose %d", i, seen[i].chosen);
        }
    }
    CHECK(cudaFree(device));
    return Program::pass("3 classes");
}
