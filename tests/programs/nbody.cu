// Bodies under gravity: all pairs through tiles of positions in shared memory, vector loads, several time steps.
#include "program.h"

#include <cmath>
#include <vector>

constexpr int THREADS = 64;
constexpr float SOFTENING = 0.01f, TIME_STEP = 0.01f;

__global__ void accelerate(const float4 *positions, float4 *velocities, int n) {
    __shared__ float4 tile[THREADS];
    const int i = blockIdx.x * THREADS + threadIdx.x;
    const float4 own = i < n ? positions[i] : make_float4(0, 0, 0, 0);
    float ax = 0, ay = 0, az = 0;
    for (int begin = 0; begin < n; begin += THREADS) {
        // A body of no mass fills the last tile.
        tile[threadIdx.x] = begin + threadIdx.x < n ? positions[begin + threadIdx.x] : make_float4(0, 0, 0, 0);
        __syncthreads();
        for (int j = 0; j < THREADS; j++) {
            const float4 other = tile[j];
            const float dx = other.x - own.x, dy = other.y - own.y, dz = other.z - own.z;
            const float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + SOFTENING);
            const float pull = other.w * inverse * inverse * inverse;
            ax += dx * pull;
            ay += dy * pull;
            az += dz * pull;
        }
        __syncthreads();
    }
    if (i < n) {
        float4 velocity = velocities[i];
        velocity.x += ax * TIME_STEP;
        velocity.y += ay * TIME_STEP;
        velocity.z += az * TIME_STEP;
        velocities[i] = velocity;
    }
}

__global__ void move(float4 *positions, const float4 *velocities, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 position = positions[i];
    const float4 velocity = velocities[i];
    position.x += velocity.x * TIME_STEP;
    position.y += velocity.y * TIME_STEP;
    position.z += velocity.z * TIME_STEP;
    positions[i] = position;
}

struct Body {
    double position[3], velocity[3], mass;
};

static void step(std::vector<Body> &bodies) {
    for (Body &body : bodies) {
        double sum[3] = {0, 0, 0};
        for (const Body &other : bodies) {
            double apart[3], square = SOFTENING;
            for (int axis = 0; axis < 3; axis++) {
                apart[axis] = other.position[axis] - body.position[axis];
                square += apart[axis] * apart[axis];
            }
            const double pull = other.mass / (square * std::sqrt(square));
            for (int axis = 0; axis < 3; axis++) sum[axis] += apart[axis] * pull;
        }
        for (int axis = 0; axis < 3; axis++) body.velocity[axis] += sum[axis] * TIME_STEP;
    }
    for (Body &body : bodies) {
        for (int axis = 0; axis < 3; axis++) body.position[axis] += body.velocity[axis] * TIME_STEP;
    }
}

int main(int argc, char **argv) {
    const Program program("nbody", argc, argv);
    const int n = program.large ? 2000 : 200, steps = program.large ? 5 : 4;
    const int blocks = (n + THREADS - 1) / THREADS;
    std::vector<float4> positions(n), velocities(n, make_float4(0, 0, 0, 0));
    std::vector<Body> bodies(n);
    for (int i = 0; i < n; i++) {
        positions[i] = make_float4(uniform(3 * i), uniform(3 * i + 1), uniform(3 * i + 2), 1.0f / n);
        bodies[i] = {{positions[i].x, positions[i].y, positions[i].z}, {0, 0, 0}, positions[i].w};
    }

    float4 *device_positions, *device_velocities;
    CHECK(cudaMalloc(&device_positions, n * sizeof(float4)));
    CHECK(cudaMalloc(&device_velocities, n * sizeof(float4)));
    CHECK(cudaMemcpy(device_positions, positions.data(), n * sizeof(float4), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(device_velocities, velocities.data(), n * sizeof(float4), cudaMemcpyHostToDevice));
    for (int i = 0; i < steps; i++) {
        accelerate<<<blocks, THREADS>>>(device_positions, device_velocities, n);
        move<<<blocks, THREADS>>>(device_positions, device_velocities, n);
    }
    CHECK_KERNEL();
    CHECK(cudaMemcpy(positions.data(), device_positions, n * sizeof(float4), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(velocities.data(), device_velocities, n * sizeof(float4), cudaMemcpyDeviceToHost));

    for (int i = 0; i < steps; i++) step(bodies);
    double worst = 0;
    for (int i = 0; i < n; i++) {
        const float got[6] = {positions[i].x, positions[i].y, positions[i].z,
                              velocities[i].x, velocities[i].y, velocities[i].z};
        for (int axis = 0; axis < 6; axis++) {
            const double expected = axis < 3 ? bodies[i].position[axis] : bodies[i].velocity[axis - 3];
            const double error = std::fabs(got[axis] - expected);
            if (!(error < 1e-5)) Program::fail("body %d, axis %d: %.9g, not %.9g", i, axis, got[axis], expected);
            if (error > worst) worst = error;
        }
    }
    CHECK(cudaFree(device_positions));
    CHECK(cudaFree(device_velocities));
    return Program::pass("%d bodies, %d steps, error %.1e", n, steps, worst);
}
