"""One decision for GPUs, servers, trees and slots: which jobs run, where, and over which switches; ours."""
