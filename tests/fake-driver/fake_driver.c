/* A driver of devices that do not exist, for tests of memory that the processor must not touch.
 *
 * Device memory is a memfd mapped twice: at the device's address without any right, so that an
 * instruction that touches it ends the process, and at a second address that only the copy functions
 * below use. The exported functions of the vendors behave as far as callers can tell: copies need the
 * device to be current on the calling thread, unknown addresses are errors.
 *
 * Build: cc -shared -fPIC -O1 -pthread -o libfake_driver.so fake_driver.c
 * With -DFAKE_OLD_ASCEND the function that tells whose an address is, is absent, as in old versions.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEVICES 4
#define RANGES 256

struct range {
    uintptr_t address; /* what callers know; zero in a free slot */
    char *backing;
    size_t len;
    int device;
    int managed;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct range ranges[RANGES];
static int retained[DEVICES];
static int fail_code;
static unsigned long long copies;
/* The context of a device is the address of its slot. */
static char contexts[DEVICES];
static __thread char *current;

static struct range *find(uintptr_t address, size_t len)
{
    for (int i = 0; i < RANGES; i++) {
        struct range *range = &ranges[i];
        if (range->address && address >= range->address && len <= range->len
            && address - range->address <= range->len - len)
            return range;
    }
    return NULL;
}

static int current_device(void)
{
    return current ? (int)(current - contexts) : -1;
}

static uintptr_t allocate(size_t len, int device, int managed)
{
    if (len == 0 || device < 0 || device >= DEVICES)
        return 0;
    int fd = memfd_create("fake-device", MFD_CLOEXEC);
    if (fd < 0)
        return 0;
    uintptr_t result = 0;
    if (ftruncate(fd, (off_t)len) == 0) {
        char *backing = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        int rights = managed ? PROT_READ | PROT_WRITE : PROT_NONE;
        void *address = mmap(NULL, len, rights, MAP_SHARED, fd, 0);
        if (backing != MAP_FAILED && address != MAP_FAILED) {
            pthread_mutex_lock(&lock);
            for (int i = 0; i < RANGES && !result; i++) {
                if (ranges[i].address)
                    continue;
                ranges[i] = (struct range){(uintptr_t)address, backing, len, device, managed};
                result = (uintptr_t)address;
            }
            pthread_mutex_unlock(&lock);
        }
        if (!result) {
            if (backing != MAP_FAILED)
                munmap(backing, len);
            if (address != MAP_FAILED)
                munmap(address, len);
        }
    }
    close(fd);
    return result;
}

/* For tests: memory, a look at it without any of the functions under test, and faults. */

uintptr_t fake_device_alloc(size_t len, int device)
{
    return allocate(len, device, 0);
}

/* Memory that moves between device and host by itself, which both may touch. */
uintptr_t fake_managed_alloc(size_t len, int device)
{
    return allocate(len, device, 1);
}

int fake_device_free(uintptr_t address)
{
    pthread_mutex_lock(&lock);
    struct range *range = find(address, 1);
    int found = range && range->address == address;
    if (found) {
        munmap((void *)range->address, range->len);
        munmap(range->backing, range->len);
        memset(range, 0, sizeof *range);
    }
    pthread_mutex_unlock(&lock);
    return found ? 0 : -1;
}

static int look(uintptr_t address, void *bytes, size_t len, int write)
{
    pthread_mutex_lock(&lock);
    struct range *range = find(address, len);
    if (range) {
        char *there = range->backing + (address - range->address);
        if (write)
            memcpy(there, bytes, len);
        else
            memcpy(bytes, there, len);
    }
    pthread_mutex_unlock(&lock);
    return range ? 0 : -1;
}

int fake_device_peek(uintptr_t address, void *into, size_t len)
{
    return look(address, into, len, 0);
}

int fake_device_poke(uintptr_t address, const void *from, size_t len)
{
    return look(address, (void *)from, len, 1);
}

/* Copies since the library was loaded. */
unsigned long long fake_copies(void)
{
    pthread_mutex_lock(&lock);
    unsigned long long result = copies;
    pthread_mutex_unlock(&lock);
    return result;
}

/* The next copy fails with this code. */
void fake_fail_next(int code)
{
    pthread_mutex_lock(&lock);
    fail_code = code;
    pthread_mutex_unlock(&lock);
}

/* The device current on this thread, -1 without one; and making one current, -1 for none. */
int fake_current(void)
{
    return current_device();
}

void fake_make_current(int device)
{
    current = device < 0 || device >= DEVICES ? NULL : &contexts[device];
}

/* Copies between host bytes and device memory; `bad` and `lost` are the codes of a bad address and of
 * a thread without the right device. */
static int copy(uintptr_t address, void *bytes, size_t len, int write, int bad, int lost)
{
    pthread_mutex_lock(&lock);
    struct range *range = find(address, len);
    int code = 0;
    if (fail_code) {
        code = fail_code;
        fail_code = 0;
    } else if (current_device() < 0) {
        code = lost;
    } else if (!range || range->device != current_device()) {
        code = bad;
    } else {
        char *there = range->backing + (address - range->address);
        if (write)
            memcpy(there, bytes, len);
        else
            memcpy(bytes, there, len);
        copies++;
    }
    pthread_mutex_unlock(&lock);
    return code;
}

/* The first family. */

#define CU_INVALID_VALUE 1
#define CU_INVALID_DEVICE 101
#define CU_INVALID_CONTEXT 201

int cuPointerGetAttribute(void *data, int attribute, unsigned long long pointer)
{
    pthread_mutex_lock(&lock);
    struct range *range = find((uintptr_t)pointer, 1);
    int code = range ? 0 : CU_INVALID_VALUE;
    if (range) {
        unsigned value = 0;
        if (attribute == 2)
            value = 2;
        else if (attribute == 8)
            value = (unsigned)range->managed;
        else if (attribute == 9)
            value = (unsigned)range->device;
        else
            code = CU_INVALID_VALUE;
        if (!code)
            memcpy(data, &value, sizeof value);
    }
    pthread_mutex_unlock(&lock);
    return code;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    if (device < 0 || device >= DEVICES)
        return CU_INVALID_DEVICE;
    pthread_mutex_lock(&lock);
    retained[device]++;
    pthread_mutex_unlock(&lock);
    *context = &contexts[device];
    return 0;
}

int cuCtxGetCurrent(void **context)
{
    *context = current;
    return 0;
}

int cuCtxSetCurrent(void *context)
{
    current = context;
    return 0;
}

int cuMemcpyDtoH_v2(void *into, unsigned long long from, size_t len)
{
    return copy((uintptr_t)from, into, len, 0, CU_INVALID_VALUE, CU_INVALID_CONTEXT);
}

int cuMemcpyHtoD_v2(unsigned long long into, const void *from, size_t len)
{
    return copy((uintptr_t)into, (void *)from, len, 1, CU_INVALID_VALUE, CU_INVALID_CONTEXT);
}

int cuStreamSynchronize(void *stream)
{
    (void)stream;
    return current ? 0 : CU_INVALID_CONTEXT;
}

/* The second family. */

#define ACL_INVALID_PARAM 107000
#define ACL_CONTEXT_NULL 107002

struct acl_attributes {
    uint32_t id;
    int32_t type; /* 0 host, 1 device */
    uint32_t page_size;
    uint32_t reserved[4];
};

#ifndef FAKE_OLD_ASCEND
int aclrtPointerGetAttributes(const void *pointer, struct acl_attributes *attributes)
{
    pthread_mutex_lock(&lock);
    struct range *range = find((uintptr_t)pointer, 1);
    memset(attributes, 0, sizeof *attributes);
    attributes->page_size = 4096;
    if (range && !range->managed) {
        attributes->id = (uint32_t)range->device;
        attributes->type = 1;
    }
    pthread_mutex_unlock(&lock);
    return 0;
}
#endif

int aclrtMemcpy(void *into, size_t room, const void *from, size_t len, int kind)
{
    if (room < len)
        return ACL_INVALID_PARAM;
    if (kind == 1)
        return copy((uintptr_t)into, (void *)from, len, 1, ACL_INVALID_PARAM, ACL_CONTEXT_NULL);
    if (kind == 2)
        return copy((uintptr_t)from, into, len, 0, ACL_INVALID_PARAM, ACL_CONTEXT_NULL);
    return ACL_INVALID_PARAM;
}

int aclrtSetDevice(int32_t device)
{
    if (device < 0 || device >= DEVICES)
        return ACL_INVALID_PARAM;
    current = &contexts[device];
    return 0;
}

int aclrtGetDevice(int32_t *device)
{
    if (!current)
        return ACL_CONTEXT_NULL;
    *device = current_device();
    return 0;
}

int aclrtGetCurrentContext(void **context)
{
    if (!current)
        return ACL_CONTEXT_NULL;
    *context = current;
    return 0;
}

int aclrtSetCurrentContext(void *context)
{
    if (!context)
        return ACL_CONTEXT_NULL;
    current = context;
    return 0;
}
