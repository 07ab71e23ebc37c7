// Host code that uses the module `storage`, for its tests: host SOCKET EXTENTS BLOCKS writes numbered blocks to extent 0, reads them
// back, and is refused what lies behind them. It is C, but for its casts.
#include <bulkhead_storage_host.h>

int main(int argc, char **argv) {
    struct bulkhead_storage storage;
    char why[256] = "";
    if (argc != 4 || bulkhead_storage_open(&storage, argv[1], argv[2], why, sizeof why) != 0) {
        printf("refused: %s\n", why);
        return 1;
    }
    const uint64_t blocks = strtoull(argv[3], NULL, 0), words = blocks * 64;
    uint64_t *written = (uint64_t *)malloc(words * 8), *read = (uint64_t *)calloc(words, 8), wrong = 0;
    if (written == NULL || read == NULL) return 2;
    for (uint64_t at = 0; at < words; at++) written[at] = at / 64;
    const uint32_t codes[] = {
        bulkhead_storage_write(&storage, 0, 0, blocks, written), bulkhead_storage_flush(&storage, 0),
        bulkhead_storage_read(&storage, 0, 0, blocks, read),     bulkhead_storage_read(&storage, 0, 1, blocks, read),
        bulkhead_storage_write(&storage, 1, 0, 1, written),      bulkhead_storage_read(&storage, 2, 0, 1, read),
        bulkhead_storage_read(&storage, 0, 0, blocks, read),
    };
    for (uint64_t at = 0; at < words; at++) wrong += read[at] != written[at];
    for (size_t at = 0; at < sizeof codes / sizeof *codes; at++) printf("%x ", codes[at]);
    printf("\n%llu wrong\n", (unsigned long long)wrong);
    bulkhead_storage_close(&storage);
    return wrong == 0 ? 0 : 4;
}
