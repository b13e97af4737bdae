/* A plugin of QEMU that counts executed instructions and prints their number at the end; for benchmarks/arm.py.
   The functions are declared here because distributions ship no header of them. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

typedef uint64_t plugin_id;
struct block;

void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct block *));
void qemu_plugin_register_vcpu_tb_exec_inline(struct block *, int operation, void *counter, uint64_t operand);
void qemu_plugin_register_atexit_cb(plugin_id, void (*)(plugin_id, void *), void *);
size_t qemu_plugin_tb_n_insns(const struct block *);

int qemu_plugin_version = 1;
static const int ADD = 0;
static uint64_t executed;

static void translated(plugin_id id, struct block *block) {
  (void)id;
  qemu_plugin_register_vcpu_tb_exec_inline(block, ADD, &executed, qemu_plugin_tb_n_insns(block));
}

static void ended(plugin_id id, void *none) {
  (void)id, (void)none;
  fprintf(stderr, "instructions %" PRIu64 "\n", executed);
}

int qemu_plugin_install(plugin_id id, const void *machine, int count, char **words) {
  (void)machine, (void)count, (void)words;
  qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
  qemu_plugin_register_atexit_cb(id, ended, NULL);
  return 0;
}
