/** Locks of redlatch for ShedLock. */
package dev.redlatch.client.shedlock;
