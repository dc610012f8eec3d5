/* serve.h: `dsagent serve`, the agent as a daemon.
 *
 *     dsagent serve --job J --node N [--ready-fd FD] [--orphan-ns NS] [--log FILE]
 *
 * Leaves its starter's session and process group, binds the node's socket, writes "ready\n" to
 * the ready fd (or a line that says why not), closes it and serves.  If an agent serves that
 * socket already, that is "ready" too.  Ends after Dismiss, on SIGTERM or SIGINT, or orphaned.
 */
#ifndef DS_AGENT_SERVE_H
#define DS_AGENT_SERVE_H

int serve_main(int argc, char **argv); /* argv[0] is "serve"; returns the exit code */

#endif
