/* Runs random jobs through steps.c of MINA's replica, so that sanitizers can watch. */
#include <stdint.h>
#include <stdlib.h>

enum { PROFILES = 4, SUMS = 6, JOBS = 12, SWITCHES = 5, TREE = 3, RUNS = 200 };

struct profile {
    int64_t sums;
    double step_s;
    const double *start_s, *in_network_s, *by_hosts_s, *floor_s, *rest_s;
};

struct job {
    int64_t profile, hosts, steps, group, rank;
    const int32_t *tree, *next_tree;
    int64_t tree_size, next_size, changing, step, sum, running, in_network, done;
    double start_s, step_start_s, until_s, finish_s;
};

struct cluster {
    const struct profile *profiles;
    struct job *const *jobs;
    int64_t count;
    int32_t *used;
    int64_t policy;
    double now_s;
    int64_t *heap;
};

int64_t mina_run(struct cluster *c, double end_s);

static void run_jobs(void)
{
    static double columns[PROFILES][5][SUMS];
    struct profile profiles[PROFILES];
    struct job jobs[JOBS] = {{0}}, *pointers[JOBS];
    int32_t trees[JOBS][TREE], used[SWITCHES] = {0};
    int64_t heap[JOBS];
    for (int p = 0; p < PROFILES; p++) {
        double rest_s = 0, floor_s = 1;
        for (int s = SUMS - 1; s >= 0; s--) {
            columns[p][0][s] = (double)(s + 1) / (rand() % 4 + SUMS);
            columns[p][1][s] = 0.01 * (rand() % 20 + 1);
            columns[p][2][s] = 2 * columns[p][1][s];
            columns[p][3][s] = floor_s;
            columns[p][4][s] = rest_s;
            rest_s += columns[p][2][s];
            floor_s = floor_s > columns[p][0][s] + rest_s ? floor_s : columns[p][0][s] + rest_s;
        }
        profiles[p] = (struct profile){rand() % SUMS,  1, columns[p][0], columns[p][1], columns[p][2],
                                       columns[p][3], columns[p][4]};
    }
    for (int j = 0; j < JOBS; j++) {
        for (int t = 0; t < TREE; t++)
            trees[j][t] = rand() % SWITCHES;
        jobs[j] = (struct job){.profile = rand() % PROFILES, .hosts = rand() % 8 + 1, .steps = rand() % 9 + 1};
        jobs[j].rank = rand() % JOBS;
        jobs[j].group = rand() % 3 - 1;
        jobs[j].tree = trees[j];
        jobs[j].tree_size = rand() % (TREE + 2) - 1;
        pointers[j] = &jobs[j];
    }
    struct cluster c = {profiles, pointers, JOBS, used, rand() % 3, 0, heap};
    for (int ended = 0; ended < JOBS; ended++) {
        int64_t number = mina_run(&c, 1e9);
        if (number < 0 || !jobs[number].done)
            abort();
        struct job *j = &jobs[rand() % JOBS];
        j->next_tree = trees[rand() % JOBS];
        j->next_size = rand() % (TREE + 1);
        j->changing = j->running && j->in_network;
    }
    for (int s = 0; s < SWITCHES; s++)
        if (used[s])
            abort();
    if (mina_run(&c, 1e9) != -1)
        abort();
}

int main(int argc, char **argv)
{
    srand(argc > 1 ? (unsigned)atoi(argv[1]) : 0);
    for (int run = 0; run < RUNS; run++)
        run_jobs();
    return 0;
}
