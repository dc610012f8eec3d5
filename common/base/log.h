/* log.h: diagnostics of our own programs, on stderr, one write(2) a line.
 *
 * A line is "HH:MM:SS.mmm who: level: text".  A function either logs or returns an error, never
 * both.  The level and the name are the only mutable file-scope state of the code base; they
 * are set once by main.  Any thread.
 */
#ifndef DS_BASE_LOG_H
#define DS_BASE_LOG_H

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* `who` is borrowed for the life of the program ("controller", "agent n3", "rank 5"). */
void log_init(const char *who, enum log_level level);
void log_at(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_at(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_at(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_at(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_at(LOG_DEBUG, __VA_ARGS__)

#endif
