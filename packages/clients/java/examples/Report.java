package examples;

import dev.redlatch.client.Locks;
import dev.redlatch.client.shedlock.RedlatchLockProvider;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.spring.annotation.EnableSchedulerLock;
import net.javacrumbs.shedlock.spring.annotation.SchedulerLock;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.scheduling.annotation.EnableScheduling;
import org.springframework.scheduling.annotation.Scheduled;

/** A job of Spring's scheduler that runs in one of several processes. */
@Configuration
@EnableScheduling
@EnableSchedulerLock(defaultLockAtMostFor = "10m")
public class Report {
    @Bean
    LockProvider lockProvider(Locks locks) {
        return new RedlatchLockProvider(locks);
    }

    /** Nobody starts it again in this minute, not even with a clock that is behind. */
    @Scheduled(cron = "0 * * * * *")
    @SchedulerLock(name = "report", lockAtLeastFor = "50s")
    public void report() {
        System.out.println("the report");
    }
}
