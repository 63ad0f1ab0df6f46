-- c_names: names of the library of C that stand in the headers of C itself and of the emitted programs. A type or a
-- parameter of such a name does not compile behind these headers. tests/lua/test_names.lua compares the list with those
-- of the machine. The words of the language are in base/text.lua.
local c_names = {}

--- Functions, variables and macros, a space before and behind each; those that end with _t are left out.
c_names.LIBRARY = [[
 a64l abort abs acos acosf acosh acoshf acoshl acosl aligned_alloc alloca arc4random arc4random_buf
 arc4random_uniform asctime asctime_r asin asinf asinh asinhf asinhl asinl at_quick_exit atan atan2 atan2f
 atan2l atanf atanh atanhf atanhl atanl atexit atof atoi atol atoll bcmp bcopy bool bsearch bzero calloc cbrt
 cbrtf cbrtl ceil ceilf ceill clearenv clearerr clearerr_unlocked clock clock_getcpuclockid clock_getres
 clock_gettime clock_nanosleep clock_settime copysign copysignf copysignl cos cosf cosh coshf coshl cosl
 ctermid ctime ctime_r daylight difftime div dprintf drand48 drand48_data drand48_r drem dremf dreml dysize
 ecvt ecvt_r erand48 erand48_r erf erfc erfcf erfcl erff erfl errno exit exp exp2 exp2f exp2l expf expl
 explicit_bzero expm1 expm1f expm1l fabs fabsf fabsl false fclose fcvt fcvt_r fd_mask fd_set fdim fdimf fdiml
 fdopen feof feof_unlocked ferror ferror_unlocked fflush fflush_unlocked ffs ffsl ffsll fgetc fgetc_unlocked
 fgetpos fgets fileno fileno_unlocked finite finitef finitel flockfile floor floorf floorl fma fmaf fmal fmax
 fmaxf fmaxl fmemopen fmin fminf fminl fmod fmodf fmodl fopen fprintf fputc fputc_unlocked fputs fread
 fread_unlocked free freopen frexp frexpf frexpl fscanf fseek fseeko fsetpos ftell ftello ftrylockfile
 funlockfile fwrite fwrite_unlocked gamma gammaf gammal gcvt getc getc_unlocked getchar getchar_unlocked
 getdelim getenv getline getloadavg getsubopt getw gmtime gmtime_r gsignal hypot hypotf hypotl ilogb ilogbf
 ilogbl index initstate initstate_r isalnum isalnum_l isalpha isalpha_l isascii isblank isblank_l iscntrl
 iscntrl_l isdigit isdigit_l isgraph isgraph_l isinf isinff isinfl islower islower_l isnan isnanf isnanl
 isprint isprint_l ispunct ispunct_l isspace isspace_l isupper isupper_l isxdigit isxdigit_l itimerspec j0
 j0f j0l j1 j1f j1l jmp_buf jn jnf jnl jrand48 jrand48_r kill killpg l64a labs lcong48 lcong48_r ldexp ldexpf
 ldexpl ldiv lgamma lgamma_r lgammaf lgammaf_r lgammal lgammal_r llabs lldiv llrint llrintf llrintl llround
 llroundf llroundl localtime localtime_r log log10 log10f log10l log1p log1pf log1pl log2 log2f log2l logb
 logbf logbl logf logl longjmp lrand48 lrand48_r lrint lrintf lrintl lround lroundf lroundl malloc
 math_errhandling mblen mbstowcs mbtowc memccpy memchr memcmp memcpy memmove memset mkdtemp mkstemp mkstemps
 mktemp mktime modf modff modfl mrand48 mrand48_r nan nanf nanl nanosleep nearbyint nearbyintf nearbyintl
 nextafter nextafterf nextafterl nexttoward nexttowardf nexttowardl nrand48 nrand48_r on_exit open_memstream
 pclose perror popen posix_memalign pow powf powl printf pselect psiginfo psignal pthread_kill
 pthread_sigmask putc putc_unlocked putchar putchar_unlocked putenv puts putw qecvt qecvt_r qfcvt qfcvt_r
 qgcvt qsort quick_exit raise rand rand_r random random_data random_r realloc reallocarray realpath remainder
 remainderf remainderl remove remquo remquof remquol rename renameat rewind rindex rint rintf rintl round
 roundf roundl rpmatch sa_handler sa_sigaction scalb scalbf scalbl scalbln scalblnf scalblnl scalbn scalbnf
 scalbnl scanf seed48 seed48_r select setbuf setbuffer setenv setjmp setlinebuf setstate setstate_r setvbuf
 si_addr si_addr_lsb si_arch si_band si_call_addr si_fd si_int si_lower si_overrun si_pid si_pkey si_ptr
 si_status si_stime si_syscall si_timerid si_uid si_upper si_utime si_value sigaction sigaddset sigaltstack
 sigblock sigcontext sigdelset sigemptyset sigev_notify_attributes sigev_notify_function sigevent sigfillset
 siggetmask siginterrupt sigismember sigjmp_buf siglongjmp signal signgam significand significandf
 significandl sigpending sigprocmask sigqueue sigreturn sigsetmask sigstack sigsuspend sigtimedwait sigval
 sigwait sigwaitinfo sin sinf sinh sinhf sinhl sinl snprintf sprintf sqrt sqrtf sqrtl srand srand48 srand48_r
 srandom srandom_r sscanf ssignal stderr stdin stdout stpcpy stpncpy strcasecmp strcasecmp_l strcat strchr
 strcmp strcoll strcoll_l strcpy strcspn strdup strerror strerror_l strerror_r strftime strftime_l strlen
 strncasecmp strncasecmp_l strncat strncmp strncpy strndup strnlen strpbrk strrchr strsep strsignal strspn
 strstr strtod strtof strtok strtok_r strtol strtold strtoll strtoq strtoul strtoull strtouq strxfrm
 strxfrm_l system tan tanf tanh tanhf tanhl tanl tempnam tgamma tgammaf tgammal time timegm timelocal
 timer_create timer_delete timer_getoverrun timer_gettime timer_settime timespec timespec_get timeval
 timezone tm tmpfile tmpnam tmpnam_r toascii tolower tolower_l toupper toupper_l true trunc truncf truncl
 tzname tzset u_char u_int u_long u_short uint ulong ungetc unsetenv ushort va_list valloc vdprintf vfprintf
 vfscanf vprintf vscanf vsnprintf vsprintf vsscanf wcstombs wctomb y0 y0f y0l y1 y1f y1l yn ynf ynl ]]

--- Macros that are no functions: no member of a structure has such a name either.
c_names.MACROS = " bool errno false linux math_errhandling stderr stdin stdout true unix "

return c_names
