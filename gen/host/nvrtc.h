/* nvrtc.h: one more function of the Lua table `host` (host.h):
 *   nvrtc(text, name, options)   kernels compiled by NVRTC: the module, its log, the version of NVRTC; false, log,
 *                          version where they do not compile; nil and the reason where NVRTC is not found */
#ifndef GA_NVRTC_H
#define GA_NVRTC_H

#include <lua.h>

int ga_nvrtc_compile(lua_State *L);

#endif
